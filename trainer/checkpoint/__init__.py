"""Checkpoints: complete, hashed, committed by one rename, verified before anything in them is read."""
