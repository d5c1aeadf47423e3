"""The pod template of a job: what each of its nodes runs, with what, and as whom. Pure.

The pods need no privilege: they pass the Pod Security Standard `restricted`, with RDMA and the nodes' own NVMe too.
"""

from collections.abc import Mapping

from resources.fleet.embedded import NODE_VARIABLE
from resources.kubernetes import names, patch, placement, queues
from resources.kubernetes.cluster import Cluster
from resources.kubernetes.objects import CONTAINER, JOB, NAME, Object
from resources.kubernetes.placement import least, size
from resources.launcher.commands import JOB_VARIABLE, SIBLING_GRACE_SECONDS
from resources.launcher.protocol import Job
from trainer.agent import ADDRESS_VARIABLE
from trainer.last_words import FILE_VARIABLE

CONFIG, CONFIG_FOLDER, SHARED_MEMORY = "config", "/etc/slipway", "shared-memory"
CONFIG_FILE = "config.json"
"""The job's config: a key of the order, and the file in the container."""
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""Annotation by which Multus attaches a pod to further networks."""
TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes has it by default."""
PORT = 29500
"""Of the rendezvous store, on the first pod."""
LONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}


def labels(name: str, job: Job) -> dict[str, str]:
    """Of all that belongs to the job: for us its name, for people and tools what it is about."""
    about = {key if "/" in key else f"slipway/{key}": names.label_value(value) for key, value in job.labels.items()}
    return {**about, JOB: name}


def metadata(name: str, job: Job) -> Object:
    """Of an object that is called what the job's objects are."""
    return {"name": name, "labels": labels(name, job), "annotations": {NAME: job.name}}


def template(name: str, job: Job, cluster: Cluster, rendezvous: str) -> Object:
    """The pod template, patched as the cluster and then the recipe says; `rendezvous` is the first pod's host name.

    Raises ValueError for a patch that does not fit.
    """
    asked = {NETWORKS: ",".join(cluster.networks)} if cluster.networks else {}
    groups = queues.pod_annotations(name, cluster)
    notes = {NAME: job.name, DEFAULT_CONTAINER: CONTAINER, **asked, **groups, **placement.annotations(cluster)}
    template = {
        "metadata": {"labels": labels(name, job), "annotations": notes},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [_container(job, cluster, rendezvous)],
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "securityContext": _identity(cluster.user),
            "serviceAccountName": cluster.service_account,
            "terminationGracePeriodSeconds": cluster.grace_seconds,
            "volumes": _volumes(name, cluster),
            **placement.of(name, job, cluster),
        },
    }
    patched = patch.apply(template, cluster.patch, "the cluster's patch")
    return patch.apply(patched, cluster.recipe_patch, "placement.kubernetes.patch")


def command(job: Job, rendezvous: str) -> list[str]:
    """What each pod runs: a lone rank, or torchrun with the ranks of a node."""
    config = f"{CONFIG_FOLDER}/{CONFIG_FILE}"
    node = ["python", "-m", "trainer.node"]
    if _is_lone(job):
        return [*node, "rank", job.folder, *job.command, config]
    nodes = f"{least(job)}:{size(job)}" if least(job) < size(job) else f"{size(job)}"
    # A single node needs no name, and no port that others know.
    endpoint = f"{rendezvous}:{PORT}" if size(job) > 1 else "localhost:0"
    return [
        *(*node, "agent", job.folder, "python", "-P", "-m", "trainer.agent"),
        *(f"--nnodes={nodes}", f"--nproc-per-node={job.ranks_per_node}", "--max-restarts=0"),
        *(f"--rdzv-id={job.name}", f"--rdzv-endpoint={endpoint}", f"--shutdown-timeout={SIBLING_GRACE_SECONDS}"),
        *("--no-python", *job.command, config),
    ]


def _is_lone(job: Job) -> bool:
    return size(job) == job.ranks_per_node == 1


def _container(job: Job, cluster: Cluster, rendezvous: str) -> Object:
    mounts = {SHARED_MEMORY: "/dev/shm", CONFIG: CONFIG_FOLDER}
    return {
        "name": CONTAINER,
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": command(job, rendezvous),
        "env": _environment(job, cluster),
        "resources": {"requests": dict(cluster.resources), "limits": dict(cluster.resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # What the container itself could not say, killed for its memory, is the end of its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *({"name": volume, "mountPath": path} for volume, path in mounts.items()),
            *({"name": _volume(claim), "mountPath": path} for path, claim in sorted(cluster.volumes.items())),
        ],
    }


def _environment(job: Job, cluster: Cluster) -> list[Object]:
    """As `resources.launcher.commands` has it; nobody can pretend to be on another node, or of another job."""
    said = {
        **_threads(job, cluster.resources),
        **(LONE_RANK if _is_lone(job) else {}),
        # A rank that is killed has its last words in the log.
        "PYTHONUNBUFFERED": "1",
        # With the agents' store shared, a new rendezvous reads the stale addresses of the last one.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        **cluster.environment,
        **job.environment,
        JOB_VARIABLE: job.name,
        FILE_VARIABLE: TERMINATION_LOG,
    }
    known = {NODE_VARIABLE: "spec.nodeName", ADDRESS_VARIABLE: "status.podIP"}
    return [
        *({"name": key, "value": value} for key, value in sorted(said.items()) if key not in known),
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in known.items()),
    ]


def _threads(job: Job, resources: Mapping[str, str]) -> dict[str, str]:
    """The ranks of a pod share its cores: more threads would spin in each other's way."""
    cpu = resources.get("cpu")
    if cpu is None:
        return {}
    cores = float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    return {"OMP_NUM_THREADS": str(max(1, int(cores) // job.ranks_per_node))}


def _identity(user: int) -> Object:
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        # Changing the owner of all that a large volume holds takes hours.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _volumes(name: str, cluster: Cluster) -> list[Object]:
    key = {"key": CONFIG_FILE, "path": CONFIG_FILE}
    return [
        {"name": SHARED_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": cluster.shared_memory}},
        {"name": CONFIG, "configMap": {"name": name, "items": [key]}},
        *(
            {"name": _volume(claim), "persistentVolumeClaim": {"claimName": claim}}
            for claim in sorted(set(cluster.volumes.values()))
        ),
    ]


def _volume(claim: str) -> str:
    return f"claim-{names.object_name(claim)}"
