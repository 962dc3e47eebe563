"""The audit log: signed chains of records, bounded, searchable, copied and pruned."""
