"""Serving objects on a cluster: vLLM's pods for each version, and the front before them. Pure.

A new version gets new objects with another name, and the front moves the traffic. The pods need no privileges: they
pass the Pod Security Standard `restricted`.
"""

from typing import Any

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.kubernetes.objects import SERVICES, KubernetesObject, Resource, of
from slipway.resources.serving.settings import ServingSettings
from slipway.serving import draining
from slipway.serving.records import ServedVersion, service_name
from slipway.trainer.base import host_names

DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments")
SCALERS = Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")
SCALED_OBJECTS = Resource("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", operator="KEDA")
BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
INGRESSES = Resource("networking.k8s.io", "v1", "Ingress", "ingresses")
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", operator="LeaderWorkerSet"
)
KINDS = (DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES, SCALERS, SCALED_OBJECTS, BUDGETS, INGRESSES)
SERVES = "slipway/serves"
"""The label of every serving object, with the name of the version's objects, or `front`."""
MODEL = "slipway/model"
FRONT = "slipway-front"
PORT = 8000
MODELS = "/models"
DRAIN_SECONDS = draining.GRACE_SECONDS
"""How long running requests may take when their pod is stopped or no longer needed."""
START_PERIOD = 10
INGRESS_SECONDS = "300"
MASTER_PORT = 29501
"""The rendezvous port of the leader's and the workers' ranks. It is open until the leader's ranks have ended."""
_RANK = (
    f"--nnodes $LWS_GROUP_SIZE --node-rank $LWS_WORKER_INDEX --master-addr $LWS_LEADER_ADDRESS "
    f"--master-port {MASTER_PORT}"
)
LEADER = _RANK
WORKER = f"{_RANK} --headless"
"""vLLM's arguments in the leader and in a worker of a group of pods; LeaderWorkerSet sets the variables."""
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
"""A program that ends once the leader has not listened three times in a row, or after a number of seconds. It is inline
because it runs in vLLM's image, which is not ours."""


def of_version(
    model: str, version: ServedVersion, settings: ServingSettings, cluster: Cluster, durable: str
) -> list[tuple[Resource, KubernetesObject]]:
    """The objects of one version: its pods, their Service, their autoscaler and their disruption budget."""
    name = service_name(model, version)
    labels = {SERVES: name, "slipway/version": version.number}
    annotations = {MODEL: model, "slipway/checkpoint": version.checkpoint, "slipway/manifest": version.manifest}
    about: KubernetesObject = {"name": name, "labels": labels, "annotations": annotations}
    pod = _PodMaker(model, version, settings, cluster, durable)
    if settings.nodes > 1:
        kind = LEADER_WORKER_SETS
        leaders = {**labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
        workload = _groups(pod, labels, annotations)
    else:
        kind = DEPLOYMENTS
        leaders = labels
        workload = _deployment(pod, labels, annotations)
    target = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
    if settings.scaler == "keda":
        scaler_kind = SCALED_OBJECTS
        scaler = _by_waiting(target, version.named(model), settings)
    else:
        scaler_kind = SCALERS
        scaler = _by_gpu_use(target, settings)
    return [
        (kind, of(kind, about, {"replicas": settings.least_replicas, **workload})),
        (SERVICES, of(SERVICES, about, _service(leaders))),
        (scaler_kind, of(scaler_kind, about, scaler)),
        (BUDGETS, of(BUDGETS, about, {"maxUnavailable": 1, "selector": {"matchLabels": dict(labels)}})),
    ]


def of_front(settings: ServingSettings, cluster: Cluster, durable: str) -> list[tuple[Resource, KubernetesObject]]:
    """The objects of the front: two pods, their Service, and an Ingress if there is a host."""
    labels = {SERVES: "front"}
    about: KubernetesObject = {"name": FRONT, "labels": labels}
    command = ["python", "-P", "-m", "slipway.serving", "--durable", durable, "--host", "0.0.0.0", "--port", str(PORT)]
    container = {
        **_container("front", settings.front_image, cluster),
        "command": [*command, "--service", f"http://{{name}}.{cluster.namespace}.svc:{PORT}"],
        "env": [{"name": host_names.VARIABLE, "value": ",".join(_hosts(settings, cluster))}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # The front is ready as soon as it runs, since a model without a server must not block the others.
        "readinessProbe": _probe("/live", 1, 5),
        "livenessProbe": _probe("/live", 10, 30),
        "lifecycle": _forgotten_first(),
        "resources": _amounts({"cpu": "1", "memory": "1Gi"}),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, *_mount(cluster, durable, read_only=False)],
    }
    pod = {
        **_pod(cluster),
        **_apart(labels),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *_claim(cluster, durable)],
        "terminationGracePeriodSeconds": DRAIN_SECONDS,
    }
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "strategy": _one_at_a_time(),
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    objects_of_front = [
        (DEPLOYMENTS, of(DEPLOYMENTS, about, spec)),
        (SERVICES, of(SERVICES, about, _service(labels))),
        (BUDGETS, of(BUDGETS, about, {"maxUnavailable": 1, "selector": {"matchLabels": labels}})),
    ]
    return [*objects_of_front, (INGRESSES, _ingress(settings, about))] if settings.host else objects_of_front


class _PodMaker:
    """Creates the pod templates of one version."""

    def __init__(
        self, model: str, version: ServedVersion, settings: ServingSettings, cluster: Cluster, durable: str
    ) -> None:
        self._model = model
        self._version = version
        self.settings = settings
        self._cluster = cluster
        self._durable = durable

    def template(self, labels: dict[str, str], annotations: dict[str, str], rank: str = "") -> KubernetesObject:
        """A pod template; `rank` holds further arguments of a pod in a group."""
        settings = self.settings
        claims = _claim(self._cluster, self._durable)
        answers = rank != WORKER
        server = {
            **_container("vllm", settings.image, self._cluster),
            "command": ["/bin/sh", "-c", f"exec {self._command()} {rank}".strip()],
            "env": [{"name": "HOME", "value": "/tmp"}, {"name": "VLLM_NO_USAGE_STATS", "value": "1"}],
            "resources": _amounts(settings.resources),
            "volumeMounts": [
                {"name": "model", "mountPath": MODELS, "readOnly": True},
                {"name": "shared-memory", "mountPath": "/dev/shm"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        if answers:
            server |= {
                "ports": [{"name": "http", "containerPort": PORT}],
                "startupProbe": _starting(settings),
                "readinessProbe": _probe("/health", settings.ready_seconds, 10),
                "livenessProbe": _probe("/health", settings.live_seconds, 30),
                "lifecycle": _forgotten_first(),
            }
        else:
            server |= {"lifecycle": after_the_leader()}
        spec = {
            **_pod(self._cluster),
            **(_apart(labels) if settings.nodes == 1 else {}),
            "initContainers": [self._puller()],
            "containers": [server],
            "nodeSelector": dict(settings.node_selector),
            "tolerations": [dict(toleration) for toleration in settings.tolerations],
            "terminationGracePeriodSeconds": DRAIN_SECONDS,
            **({"priorityClassName": settings.priority} if settings.priority else {}),
            "volumes": [
                {"name": "model", "emptyDir": {"sizeLimit": settings.disk}},
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": settings.shared_memory}},
                {"name": "tmp", "emptyDir": {}},
                *claims,
            ],
        }
        return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}

    def _command(self) -> str:
        settings = self.settings
        name = self._version.named(self._model)
        options = {
            "served-model-name": f"{name} {self._model}",
            "tensor-parallel-size": settings.tensor_parallel,
            "max-model-len": settings.context,
            "gpu-memory-utilization": f"{settings.memory_share:.2f}",
            "dtype": settings.dtype,
            "host": "0.0.0.0",
            "port": PORT,
            "shutdown-timeout": draining.ANSWERS_SECONDS,
        }
        if settings.nodes > 1:
            options["pipeline-parallel-size"] = settings.nodes
        return f"vllm serve {MODELS}/model " + " ".join(f"--{key} {value}" for key, value in options.items())

    def _puller(self) -> KubernetesObject:
        version = self._version
        command = ["python", "-P", "-m", "slipway.serving.pull", "--from", self._durable, "--folder", version.folder]
        return {
            **_container("pull", self.settings.front_image, self._cluster),
            "command": [*command, "--manifest", version.manifest, "--to", f"{MODELS}/model"],
            "resources": _amounts({"cpu": "4", "memory": "2Gi"}),
            "volumeMounts": [
                {"name": "model", "mountPath": MODELS},
                {"name": "tmp", "mountPath": "/tmp"},
                *_mount(self._cluster, self._durable, read_only=True),
            ],
        }


def group_workload(size: int, leader: KubernetesObject, worker: KubernetesObject) -> KubernetesObject:
    """The workload of a LeaderWorkerSet: groups of pods with these templates, which start and end together."""
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
    """The hook that stops a worker's server only after the leader's has ended, or has had time to end."""
    seconds = draining.FORGOTTEN_SECONDS + draining.ANSWERS_SECONDS
    return {"preStop": {"exec": {"command": ["python3", "-c", FOLLOW, str(MASTER_PORT), str(seconds)]}}}


def _hosts(settings: ServingSettings, cluster: Cluster) -> list[str]:
    """The host names that the front accepts: those of its Service, and those that people use."""
    service = [FRONT, *(f"{FRONT}.{cluster.namespace}{domain}" for domain in ("", ".svc", ".svc.cluster.local"))]
    return [*service, *filter(None, (settings.host, *settings.hosts))]


def _deployment(pod: _PodMaker, labels: dict[str, str], annotations: dict[str, str]) -> KubernetesObject:
    return {
        "selector": {"matchLabels": labels},
        "strategy": _one_at_a_time(),
        "template": pod.template(labels, annotations),
    }


def _groups(pod: _PodMaker, labels: dict[str, str], annotations: dict[str, str]) -> KubernetesObject:
    leader, worker = (pod.template(labels, annotations, rank) for rank in (LEADER, WORKER))
    return group_workload(pod.settings.nodes, leader, worker)


def _one_at_a_time() -> KubernetesObject:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}


def _by_gpu_use(target: KubernetesObject, settings: ServingSettings) -> KubernetesObject:
    """Autoscaling by GPU utilisation, which a metrics adapter reports to the autoscaler."""
    above = {"type": "AverageValue", "averageValue": str(settings.gpu_use)}
    return {
        "scaleTargetRef": target,
        "minReplicas": settings.least_replicas,
        "maxReplicas": settings.most_replicas,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": settings.gpu_metric}, "target": above}}],
        "behavior": _behavior(settings),
    }


def _by_waiting(target: KubernetesObject, named: str, settings: ServingSettings) -> KubernetesObject:
    """Autoscaling by vLLM's queue: KEDA queries Prometheus, and creates the HorizontalPodAutoscaler itself.

    vLLM's metrics carry the version's name (https://docs.vllm.ai/en/stable/usage/metrics.html). After three failed
    queries in a row, KEDA keeps at least the current replicas.
    """
    trigger = {
        "serverAddress": settings.prometheus,
        "query": f'sum(vllm:num_requests_waiting{{model_name="{named}"}})',
        "threshold": str(settings.waiting_requests),
    }
    return {
        "scaleTargetRef": target,
        "minReplicaCount": settings.least_replicas,
        "maxReplicaCount": settings.most_replicas,
        "pollingInterval": 15,
        "fallback": {"failureThreshold": 3, "replicas": settings.least_replicas, "behavior": "currentReplicasIfHigher"},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behavior(settings)}},
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
    }


def _behavior(settings: ServingSettings) -> KubernetesObject:
    """Scaling by one pod per minute, once the demand has lasted for some time."""

    def steps(seconds: int) -> KubernetesObject:
        policy = {"type": "Pods", "value": 1, "periodSeconds": 60}
        return {"stabilizationWindowSeconds": seconds, "policies": [policy]}

    return {"scaleUp": steps(settings.up_seconds), "scaleDown": steps(settings.down_seconds)}


def _ingress(settings: ServingSettings, about: KubernetesObject) -> KubernetesObject:
    timeouts = {
        f"nginx.ingress.kubernetes.io/proxy-{direction}-timeout": INGRESS_SECONDS for direction in ("read", "send")
    }
    annotations = {**timeouts, "nginx.ingress.kubernetes.io/proxy-buffering": "off"}  # streams arrive as they are made
    backend = {"service": {"name": FRONT, "port": {"name": "http"}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec = {"ingressClassName": settings.ingress_class, "rules": [{"host": settings.host, "http": {"paths": [path]}}]}
    return of(INGRESSES, {**about, "annotations": annotations}, spec)


def _service(labels: dict[str, str]) -> KubernetesObject:
    return {"selector": labels, "ports": [{"name": "http", "port": PORT, "targetPort": PORT}]}


def _pod(cluster: Cluster) -> KubernetesObject:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "serviceAccountName": cluster.service_account,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": cluster.user,
            "runAsGroup": cluster.user,
            "fsGroup": cluster.user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _container(name: str, image: str, cluster: Cluster) -> KubernetesObject:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": cluster.pull_policy,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _probe(path: str, delay: int, period: int) -> KubernetesObject:
    get = {"path": path, "port": PORT}
    return {"httpGet": get, "initialDelaySeconds": delay, "periodSeconds": period, "timeoutSeconds": 5}


def _starting(settings: ServingSettings) -> KubernetesObject:
    """The startup probe. Other probes wait for it, since loading large weights may take longer than a hang."""
    often = {"periodSeconds": START_PERIOD, "failureThreshold": -(-settings.start_seconds // START_PERIOD)}
    return {"httpGet": {"path": "/health", "port": PORT}, **often, "timeoutSeconds": 5}


def _forgotten_first() -> KubernetesObject:
    """The hook that delays the end of a pod for some seconds, until the Service no longer sends it requests."""
    return {"preStop": {"exec": {"command": ["sleep", str(draining.FORGOTTEN_SECONDS)]}}}


def _apart(labels: dict[str, str]) -> KubernetesObject:
    """The constraint that spreads pods over nodes, so that the loss of one node does not end all of them."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}]}


def _amounts(amounts: Any) -> KubernetesObject:
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _claim_of(cluster: Cluster, durable: str) -> tuple[str, str]:
    """The path and the claim of the volume that holds the durable tier. Raises ValueError if there is none."""
    claims = {
        path: claim for path, claim in cluster.volumes.items() if f"{durable}/".startswith(f"{path.rstrip('/')}/")
    }
    if not claims:
        raise ValueError(f"compute.cluster.volumes: found none that holds {durable}, expected the durable tier's")
    path = max(claims, key=len)
    return path, claims[path]


def _mount(cluster: Cluster, durable: str, read_only: bool) -> list[KubernetesObject]:
    return [{"name": "durable", "mountPath": _claim_of(cluster, durable)[0], "readOnly": read_only}]


def _claim(cluster: Cluster, durable: str) -> list[KubernetesObject]:
    return [{"name": "durable", "persistentVolumeClaim": {"claimName": _claim_of(cluster, durable)[1]}}]
