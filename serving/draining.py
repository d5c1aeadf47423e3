"""Draining: how long a process that is asked to stop waits for the answers in progress.

On a cluster a pod gets SIGTERM before the other components know that it stops. So it first keeps answering until nobody
sends new requests, and then finishes the answers in progress, all within the pod's grace period.
"""

HERE_SECONDS = 60.0
"""Seconds for the answers in progress on one machine."""
FORGOTTEN_SECONDS = 15
"""Seconds until no Service and no Ingress sends new requests to a pod that stops."""
ANSWERS_SECONDS = 270
"""Seconds for the answers in progress after that."""
GRACE_SECONDS = 300
"""The pod's grace period, in seconds."""


def seconds(on_a_cluster: bool) -> float:
    """The seconds that the front leaves the answers in progress after it was asked to stop."""
    return ANSWERS_SECONDS if on_a_cluster else HERE_SECONDS
