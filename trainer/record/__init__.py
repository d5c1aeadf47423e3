"""The records of a training: its fence, ledger, heartbeats and scores, and the agreements of its ranks."""
