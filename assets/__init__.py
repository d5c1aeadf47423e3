"""What exists: datasets, staged shards, sweeps, trainings, checkpoints, evaluations, models.

One recipe is one lane: its assets share the key prefix and the group. Asset functions are thin; they call
pure code and return metadata.
"""
