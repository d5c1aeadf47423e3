"""Retention: the checkpoints that stay on a tier, their removal, and a forecast of when a tier will be full."""
