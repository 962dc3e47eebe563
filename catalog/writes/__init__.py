"""Manages writes of engines: write sessions, transport keys, data files and their manifests."""
