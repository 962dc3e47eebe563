"""The trusted state in the database: governed versions, seals, pointers, locations, PEKs, requests."""
