"""The KMS endpoint for Hadoop and ORC clients: a separate class of keys, over Hadoop's KMS protocol."""
