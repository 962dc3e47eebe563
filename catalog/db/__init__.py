"""The catalog's SQL state: table definitions, migrations, engine."""
