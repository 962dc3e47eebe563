"""A bounded Avro decoder, from untrusted bytes into Arrow."""
