"""Tools of every build: its folder, its log, the memory of what was made, and worker processes."""
