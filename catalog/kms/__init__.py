"""Key management services: the interface, the back ends, and what keeps a failing one from doing harm."""
