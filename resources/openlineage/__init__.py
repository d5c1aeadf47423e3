"""OpenLineage: send the lineage of snapshots, trainings and checkpoints to a catalogue, as OpenLineage events.

events      the events of snapshots, trainings and checkpoints; pure
target      where they go: a file or a server
sent_events which were sent already
"""
