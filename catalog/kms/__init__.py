"""Key management services: interface, back ends, and resilience."""
