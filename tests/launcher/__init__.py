"""What launchers guarantee, proven with real processes."""
