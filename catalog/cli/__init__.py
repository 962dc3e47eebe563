"""The command `lakewarden`: one module for each group of commands."""
