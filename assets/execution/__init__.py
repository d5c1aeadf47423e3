"""Execution of a run's steps on a cluster, and of an asset's work on nodes."""
