"""Storage access of clients: which objects a table lets them touch, and signatures for them."""
