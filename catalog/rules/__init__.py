"""Rules for changes of tables: governed properties, encryption policy, masks, Iceberg metadata."""
