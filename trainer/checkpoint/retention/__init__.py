"""Retention: which checkpoints stay on a tier, which are removed, and when a tier will be full."""
