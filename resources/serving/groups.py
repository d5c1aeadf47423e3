"""Groups: a replica that does not fit one node, as a LeaderWorkerSet. Pure.

The first pod of a group leads and answers; the others hold their part of the model. LeaderWorkerSet ends a group's
other pods once the first one is gone, and the first one as soon as any other one is asked to end. So a worker that is
asked to end stays for as long as its leader does, which first gives the answers that are under way.
"""

from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.serving import draining

MASTER_PORT = 29501
"""Where the leader's ranks and the workers' meet: it listens until the leader's ranks have ended."""
_RANK = (
    f"--nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX --master-addr $LWS_LEADER_ADDRESS "
    f"--master-port {MASTER_PORT}"
)
LEADER, WORKER = _RANK, f"{_RANK} --headless"
"""vLLM's arguments of a pod of several; LeaderWorkerSet sets the variables."""
FOLLOW = """
import os, socket, sys, time
port, until, missed = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), 0
while missed < 3 and time.monotonic() < until:
    try:
        socket.create_connection((os.environ["LWS_LEADER_ADDRESS"], port), 5).close()
        missed = 0
    except OSError:
        missed += 1
    time.sleep(1)
"""
"""A program that ends when the leader has not listened three times in a row, or after so many seconds. It is in the
specification because the server's image, in which it runs, is not ours."""


def workload(size: int, leader: KubernetesObject, worker: KubernetesObject) -> KubernetesObject:
    """What a LeaderWorkerSet makes: groups of pods by these templates, which start and end together."""
    return {
        "leaderWorkerTemplate": {
            "size": size,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": leader,
            "workerTemplate": worker,
        },
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": 0, "maxSurge": 1},
        },
    }


def after_the_leader() -> KubernetesObject:
    """The worker's server is asked to end once the leader's has ended, or has had its time."""
    seconds = draining.FORGOTTEN_SECONDS + draining.ANSWERS_SECONDS
    return {"preStop": {"exec": {"command": ["python3", "-c", FOLLOW, str(MASTER_PORT), str(seconds)]}}}
