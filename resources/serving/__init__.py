"""Serving: what is wanted of the models that answer, and what runs their server, here or on a cluster."""
