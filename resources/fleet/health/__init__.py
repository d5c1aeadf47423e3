"""The health of nodes: from a suspicion to quarantine, diagnosis, and back to work or to repair."""
