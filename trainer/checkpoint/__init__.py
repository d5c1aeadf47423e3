"""Checkpoints: written whole, hashed, made visible by one rename, and verified before they are read."""
