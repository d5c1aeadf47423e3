"""Cleaning: prepares texts for training. Every algorithm is a pure function in a file of its own."""
