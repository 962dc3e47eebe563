"""Tables and namespaces: created, altered, renamed, dropped, brought back, taken over."""
