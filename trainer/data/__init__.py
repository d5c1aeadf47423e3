"""Formats of datasets on disk: shards, snapshots, vocabularies, and the readers of their samples."""
