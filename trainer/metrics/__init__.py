"""Metrics of a step: where its time went, what the hardware did, the report and the profile."""
