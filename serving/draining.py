"""Draining: how long answers may take that are under way when their process is asked to end.

On a cluster a pod gets SIGTERM before all others know that it ends. So it first waits, answering as before, until
nobody sends it anything new; then it lets what is under way end; all of it within the time that its pod is given.
"""

HERE_SECONDS = 60.0
"""On one machine."""
FORGOTTEN_SECONDS = 15
"""After so long no Service and no Ingress sends a pod that ends anything new."""
ANSWERS_SECONDS = 270
"""What answers may take from then on."""
GRACE_SECONDS = 300
"""What the pod is given in all."""


def seconds(on_a_cluster: bool) -> float:
    """What the front lets answers take after it was asked to end."""
    return ANSWERS_SECONDS if on_a_cluster else HERE_SECONDS
