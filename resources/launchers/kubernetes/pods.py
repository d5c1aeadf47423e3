"""Pod template: the pods of a job with their command, resources and user. Pure.

The pods need no privileges: they pass the Pod Security Standard `restricted`, even with RDMA and the nodes' NVMe.
"""

from collections.abc import Mapping

from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import CONTAINER, JOB, NAME, KubernetesObject
from slipway.resources.launchers.environment import rank_environment
from slipway.resources.launchers.kubernetes import names, patch, placement, queues, store
from slipway.resources.launchers.protocol import Job
from slipway.resources.launchers.torchrun import node_command
from slipway.trainer.node.agent import ADDRESS_VARIABLE
from slipway.trainer.node.process import FILE_VARIABLE
from slipway.trainer.node.runtime_info import IMAGE

CONFIG = "config"
CONFIG_FOLDER = "/etc/slipway"
SHARED_MEMORY = "shared-memory"
CONFIG_FILE = "config.json"
"""The job's config: the key in the order, and the file name in the container."""
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
"""The annotation with the further networks to which Multus attaches a pod."""
TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes' default path of a container's termination log."""


def labels(name: str, job: Job) -> dict[str, str]:
    """The labels of every object of the job: the job's name, for the launcher, and the job's own labels, for people."""
    about = {key if "/" in key else f"slipway/{key}": names.label_value(value) for key, value in job.labels.items()}
    return {**about, JOB: name}


def metadata(name: str, job: Job) -> KubernetesObject:
    """The metadata of an object of the job."""
    return {"name": name, "labels": labels(name, job), "annotations": {NAME: job.name}}


def template(name: str, job: Job, cluster: Cluster) -> KubernetesObject:
    """The pod template, with the cluster's patch and then the recipe's.

    Raises ValueError for a patch that does not fit.
    """
    networks = {NETWORKS: ",".join(cluster.networks)} if cluster.networks else {}
    groups = queues.pod_annotations(name, cluster)
    placement_annotations = {**placement.STAYS, **placement.annotations(cluster)}
    annotations = {NAME: job.name, DEFAULT_CONTAINER: CONTAINER, **networks, **groups, **placement_annotations}
    template = {
        "metadata": {"labels": labels(name, job), "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [_container(name, job, cluster)],
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            **({"runtimeClassName": cluster.runtime_class} if cluster.runtime_class else {}),
            "securityContext": identity(cluster.user),
            "serviceAccountName": cluster.service_account,
            "terminationGracePeriodSeconds": cluster.grace_seconds,
            "volumes": _volumes(name, cluster),
            **placement.of(name, job, cluster),
        },
    }
    patched = patch.apply(template, cluster.patch, "the cluster's patch")
    return patch.apply(patched, cluster.recipe_patch, "placement.kubernetes.patch")


def command(name: str, job: Job) -> list[str]:
    """The command of each pod; `name` is the name of the job's objects."""
    return node_command(job, f"{CONFIG_FOLDER}/{CONFIG_FILE}", store.endpoint(name, job), python="python")


def _container(name: str, job: Job, cluster: Cluster) -> KubernetesObject:
    mounts = {SHARED_MEMORY: "/dev/shm", CONFIG: CONFIG_FOLDER}
    return {
        "name": CONTAINER,
        "image": cluster.image,
        "imagePullPolicy": cluster.pull_policy,
        "command": [*_raising_memlock(cluster), *command(name, job)],
        "env": _environment(job, cluster),
        "resources": {"requests": cluster.requested, "limits": dict(cluster.resources)},
        "securityContext": _privileges(cluster),
        # A container that is killed out of memory writes no termination log: use the end of its log instead.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *({"name": volume, "mountPath": path} for volume, path in mounts.items()),
            *({"name": _volume(claim), "mountPath": path} for path, claim in sorted(cluster.volumes.items())),
        ],
    }


def _privileges(cluster: Cluster) -> KubernetesObject:
    """The privileges of the container's first process."""
    if cluster.memlock == "node":
        return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE", "SETUID", "SETGID"]},
        "runAsNonRoot": False,
        "runAsUser": 0,
    }


def _raising_memlock(cluster: Cluster) -> list[str]:
    """The command prefix that raises the limit on locked memory, and then permanently drops root.

    The capability IPC_LOCK would not help: without ambient capabilities in Kubernetes, it never reaches a user process.
    """
    if cluster.memlock == "node":
        return []
    user = str(cluster.user)
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={user}", "--inh-caps=-all", "--no-new-privs"]
    return ["prlimit", "--memlock=unlimited", "--", *become, "--"]


def _environment(job: Job, cluster: Cluster) -> list[KubernetesObject]:
    """The environment of the container. The cluster fills in the node's name and the pod's address, so that no job can
    pretend to run on another node."""
    variables = {
        **rank_environment(job, _cores(cluster.resources), cluster.environment),
        IMAGE: cluster.image,
        FILE_VARIABLE: TERMINATION_LOG,
    }
    filled_in = {NODE_VARIABLE: "spec.nodeName", ADDRESS_VARIABLE: "status.podIP"}
    return [
        *({"name": key, "value": value} for key, value in sorted(variables.items()) if key not in filled_in),
        *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in filled_in.items()),
    ]


def _cores(resources: Mapping[str, str]) -> float | None:
    """The number of cores of a pod; None if the settings do not limit them."""
    cpu = resources.get("cpu")
    if cpu is None:
        return None
    return float(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)


def identity(user: int) -> KubernetesObject:
    """The security context of a pod: its user, without any privileges."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        # Changing the owner of every file of a large volume would take hours.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _volumes(name: str, cluster: Cluster) -> list[KubernetesObject]:
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
