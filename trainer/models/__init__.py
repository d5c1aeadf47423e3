"""Models; a new one is one file."""
