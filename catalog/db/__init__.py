"""The catalog's own SQL state: table definitions, migrations, engine."""
