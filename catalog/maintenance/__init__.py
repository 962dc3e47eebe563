"""How files are encrypted, by the epoch of their time: judged, counted, and rewritten."""
