"""Saving a checkpoint: planned once, copied from the tensors in use, and written by a process of its own."""
