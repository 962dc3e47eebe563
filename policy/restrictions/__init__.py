"""What a user is allowed to see of a table's rows and values: row filters and column masks, as one value."""
