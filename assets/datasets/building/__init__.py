"""Tools for every build: the scratch folder, the log, the step cache, and worker processes."""
