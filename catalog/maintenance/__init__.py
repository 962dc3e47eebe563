"""How files are encrypted, by the regime of their time: judged, counted, and written anew."""
