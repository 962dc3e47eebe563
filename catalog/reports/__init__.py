"""Reports on a catalog: who can do what, how tables are encrypted, which keys end, what was refused.

Each module answers one question with a `Report`, which the command line and the HTTP service show alike. They
authorize nothing: callers do.
"""
