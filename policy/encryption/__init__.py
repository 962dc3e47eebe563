"""What a table's properties say of its encryption: specification, epochs, columns, downgrades."""
