"""The trusted state of Lakewarden and everything that serves it; users call it through `lakewarden`."""
