"""Unavailable: the one exception for a launcher, a fleet or a cluster that could not be asked."""


class Unavailable(Exception):
    """It could not be asked. Nothing follows from that about the job or the node in question."""
