"""The command `lakewarden`, whole: the catalog's commands and those that need Spark."""
