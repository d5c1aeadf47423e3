"""Compute: where trainings run. One resource joins a launcher, a fleet and node tasks."""
