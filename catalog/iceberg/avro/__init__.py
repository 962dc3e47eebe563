"""A bounded decoder of Avro, from untrusted bytes into Arrow."""
