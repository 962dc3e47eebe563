"""The demonstration: Spark SQL on guarded tables, real flights, and the attacks that are refused."""
