"""Downloads policies from Ranger Admin, and puts them in force as documents of the catalog."""
