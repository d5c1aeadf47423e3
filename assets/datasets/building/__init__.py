"""Tools of every build: its scratch folder, its log, the cache of its steps, and worker processes."""
