"""What every part of the catalog uses: errors, identifiers, points at which tests stop it."""
