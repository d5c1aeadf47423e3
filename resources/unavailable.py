"""Unavailable: the exceptions for a launcher, a fleet or a cluster that could not be asked, or cannot serve now."""


class Unavailable(Exception):
    """It could not be asked. Nothing follows from that about the job or the node in question."""


class PlatformFault(Unavailable):
    """It answered that the platform lacks what the request needs: a permission, a kind, a queue, a webhook's consent.

    The request is as good as before. It is accepted once the platform has what the message names, which a person or an
    operator may see to; until then it is repeated, with pauses.
    """
