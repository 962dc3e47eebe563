"""The KMS endpoint for stock Hadoop clients: keys of a class of its own, over Hadoop's KMS protocol."""
