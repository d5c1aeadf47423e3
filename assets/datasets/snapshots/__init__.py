"""Common parts of both kinds of snapshots: their step, the cuts between shards, the pointer and the difference."""
