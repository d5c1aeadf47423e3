"""Cleaning: what makes a text fit to be trained on; every algorithm is a pure function in a file of its own."""
