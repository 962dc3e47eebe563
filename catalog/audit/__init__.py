"""The audit log: signed chains of records, of bounded size, with search, export and pruning."""
