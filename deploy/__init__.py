"""Where it runs: the embedded instance on one machine."""
