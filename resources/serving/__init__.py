"""Serving: the requests for served models, and the runners of their servers, local or on a cluster."""
