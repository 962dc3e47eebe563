"""The settings of a process, of its KMS, and of each KMS back end."""
