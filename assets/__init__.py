"""Dagster assets: datasets, staged shards, sweeps, trainings, checkpoints, evaluations and models.

The assets of one recipe share a key prefix and a group. Asset functions are thin: they call pure code and return
metadata.
"""
