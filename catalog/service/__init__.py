"""The services of a running catalog, put together, and what all of them share."""
