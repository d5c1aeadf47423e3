"""The guarantees of launchers, tested with real processes."""
