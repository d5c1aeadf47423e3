"""OpenLineage: what was made of what, sent to a catalogue of lineage as events of the OpenLineage standard.

events      the events of snapshots, trainings and checkpoints; pure
target      where they go: a file or a server
sent        which were sent already
"""
