"""Metrics of the steps: the time of their parts, the usage of the hardware, the report and the profile."""
