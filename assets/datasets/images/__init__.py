"""Datasets of labelled images: segments, documents, classes, snapshot, checks and metadata."""
