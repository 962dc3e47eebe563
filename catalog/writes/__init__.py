"""What engines write: sessions with keys of their own, files, and the manifests that name them."""
