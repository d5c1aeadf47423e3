"""The objects of a cluster that serve: vLLM's pods for each version, and the front before them. Pure.

A version's objects never change: another version has other objects, under another name, and the front moves the
traffic. The pods need no privilege: they pass the Pod Security Standard `restricted`.
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
"""Label of every object that serves: the name of the version's objects, or `front`."""
MODEL = "slipway/model"
FRONT = "slipway-front"
PORT, MODELS = 8000, "/models"
DRAIN_SECONDS = draining.GRACE_SECONDS
"""What answers may take that are under way when their pod is asked to end, or when it is wanted no more."""
START_PERIOD = 10
INGRESS_SECONDS = "300"
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


def of_version(
    model: str, version: ServedVersion, settings: ServingSettings, cluster: Cluster, durable: str
) -> list[tuple[Resource, KubernetesObject]]:
    """The objects of one version: its pods, their Service, how many there are, and how many may be away."""
    name = service_name(model, version)
    labels = {SERVES: name, "slipway/version": version.number}
    annotations = {MODEL: model, "slipway/checkpoint": version.checkpoint, "slipway/manifest": version.manifest}
    about: KubernetesObject = {"name": name, "labels": labels, "annotations": annotations}
    pod = _PodMaker(model, version, settings, cluster, durable)
    leaders = {**labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"} if settings.nodes > 1 else labels
    kind = LEADER_WORKER_SETS if settings.nodes > 1 else DEPLOYMENTS
    workload = _groups(pod, labels, annotations) if settings.nodes > 1 else _deployment(pod, labels, annotations)
    target = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name}
    by_queue = settings.scaler == "keda"
    scaler = (
        of(SCALED_OBJECTS, about, _by_waiting(target, version.named(model), settings))
        if by_queue
        else of(SCALERS, about, _by_gpu_use(target, settings))
    )
    return [
        (kind, of(kind, about, {"replicas": settings.least_replicas, **workload})),
        (SERVICES, of(SERVICES, about, _service(leaders))),
        (SCALED_OBJECTS if by_queue else SCALERS, scaler),
        (BUDGETS, of(BUDGETS, about, {"maxUnavailable": 1, "selector": {"matchLabels": dict(labels)}})),
    ]


def of_front(settings: ServingSettings, cluster: Cluster, durable: str) -> list[tuple[Resource, KubernetesObject]]:
    """The objects of the front: two pods, their Service, and an Ingress where there is a host."""
    labels = {SERVES: "front"}
    about: KubernetesObject = {"name": FRONT, "labels": labels}
    command = ["python", "-P", "-m", "slipway.serving", "--durable", durable, "--host", "0.0.0.0", "--port", str(PORT)]
    container = {
        **_container("front", settings.front_image, cluster),
        "command": [*command, "--service", f"http://{{name}}.{cluster.namespace}.svc:{PORT}"],
        "env": [{"name": host_names.VARIABLE, "value": ",".join(_hosts(settings, cluster))}],
        "ports": [{"name": "http", "containerPort": PORT}],
        # The front is ready when it runs: a model without a server must not take the others away.
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
    """Makes the pod templates of one version."""

    def __init__(
        self, model: str, version: ServedVersion, settings: ServingSettings, cluster: Cluster, durable: str
    ) -> None:
        self._model = model
        self._version = version
        self.settings = settings
        self._cluster = cluster
        self._durable = durable

    def template(self, labels: dict[str, str], annotations: dict[str, str], rank: str = "") -> KubernetesObject:
        """One pod; `rank` are the further arguments of a pod of several nodes."""
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


def _hosts(settings: ServingSettings, cluster: Cluster) -> list[str]:
    """The names under which the front answers: its Service's, and those by which people reach it."""
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
    """Replicas by the use of their GPUs, which a metrics adapter gives to the autoscaler."""
    above = {"type": "AverageValue", "averageValue": str(settings.gpu_use)}
    return {
        "scaleTargetRef": target,
        "minReplicas": settings.least_replicas,
        "maxReplicas": settings.most_replicas,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": settings.gpu_metric}, "target": above}}],
        "behavior": _behaviour(settings),
    }


def _by_waiting(target: KubernetesObject, named: str, settings: ServingSettings) -> KubernetesObject:
    """Replicas by vLLM's queue: KEDA asks Prometheus and makes the HorizontalPodAutoscaler itself.

    vLLM's metrics have the version's own name (https://docs.vllm.ai/en/stable/usage/metrics.html). While Prometheus
    cannot be asked three times in a row, KEDA keeps the replicas at least.
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
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": _behaviour(settings)}},
        "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
    }


def _behaviour(settings: ServingSettings) -> KubernetesObject:
    """One pod a minute, once what asks for it has lasted."""

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
    """No other probe is asked before this one has passed: large weights may load longer than a server may hang."""
    often = {"periodSeconds": START_PERIOD, "failureThreshold": -(-settings.start_seconds // START_PERIOD)}
    return {"httpGet": {"path": "/health", "port": PORT}, **often, "timeoutSeconds": 5}


def _forgotten_first() -> KubernetesObject:
    """The Service forgets a pod some seconds after the pod has got SIGTERM: until then it answers as before."""
    return {"preStop": {"exec": {"command": ["sleep", str(draining.FORGOTTEN_SECONDS)]}}}


def _apart(labels: dict[str, str]) -> KubernetesObject:
    """Pods of one kind lie on different nodes where there is room, so that no node takes all of them with it."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}]}


def _amounts(amounts: Any) -> KubernetesObject:
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _claim_of(cluster: Cluster, durable: str) -> tuple[str, str]:
    """The path and the claim of the volume that holds the durable tier. Raises ValueError when none does."""
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
