"""The Spark side of Lakewarden: guarded reads and writes through the catalog's engine interface."""
