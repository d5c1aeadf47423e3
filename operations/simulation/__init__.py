"""Simulation: weeks of a large training on machines that fail, in a moment. Pure and seeded; no Dagster, no clock."""
