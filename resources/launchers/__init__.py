"""Launchers: start a job on nodes, watch it, stop it. One protocol, several implementations."""
