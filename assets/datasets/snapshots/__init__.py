"""What the snapshots of all datasets share: their step, the cuts between shards, the pointer and the difference."""
