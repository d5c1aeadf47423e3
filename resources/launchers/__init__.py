"""Launchers: start, watch and stop jobs on nodes. One protocol, several implementations."""
