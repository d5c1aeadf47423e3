"""Node health: from suspicion to quarantine and diagnosis, and back to work or to repair."""
