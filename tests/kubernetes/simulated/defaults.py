"""The defaults that the API server fills into a new object: k8s.io/kubernetes/pkg/apis and admission."""

from collections.abc import Callable

from tests.kubernetes.simulated.kinds import JOB_SETS, JOBS, NAMESPACES, NODES, PODS, SERVICES, Object, Resource

TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def fill_in(resource: Resource, object: Object) -> None:
    """Change the object in place: no other part holds it yet."""
    if resource in _DEFAULTS:
        _DEFAULTS[resource](object)


def _pod(pod: Object) -> None:
    pod_template(pod)
    spec = pod["spec"]
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("enableServiceLinks", True)
    tolerations = spec.setdefault("tolerations", [])
    for key in TOLERATIONS:  # admission plugin DefaultTolerationSeconds
        if not any(toleration.get("key") in (key, None) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def pod_template(template: Object) -> None:
    spec = template["spec"]
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    for container in [*spec.get("initContainers", ()), *spec["containers"]]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        latest = ":" not in container["image"].split("/")[-1] or container["image"].endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        resources = container.setdefault("resources", {})
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def _job(job: Object) -> None:
    """Defaults of batch/v1, and the selector and labels that the API server generates."""
    spec, metadata = job["spec"], job["metadata"]
    spec.setdefault("parallelism", 1)
    if spec.get("completionMode") != "Indexed":
        spec.setdefault("completions", 1 if spec["parallelism"] == 1 else None)
    defaults = {"completionMode": "NonIndexed", "backoffLimit": 6, "suspend": False, "manualSelector": None}
    for field, value in defaults.items():
        spec.setdefault(field, value)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    uid, name = metadata["uid"], metadata["name"]
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {"controller-uid": uid, "job-name": name}
    labels |= {f"batch.kubernetes.io/{key}": value for key, value in labels.items()}
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    template = spec["template"].setdefault("metadata", {})
    template["labels"] = {**template.get("labels", {}), **labels}
    pod_template(spec["template"])


def _job_set(job_set: Object) -> None:
    """The defaulting webhook of JobSet (pkg/webhooks/jobset_webhook.go)."""
    spec = job_set["spec"]
    spec.setdefault("suspend", False)
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec["replicatedJobs"]:
        replicated.setdefault("name", "default")
        replicated.setdefault("replicas", 1)
        job = replicated["template"]["spec"]
        job.setdefault("completionMode", "Indexed")
        job["template"]["spec"].setdefault("restartPolicy", "OnFailure")


def _service(service: Object) -> None:
    spec = service["spec"]
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("clusterIP", "10.96.0.1")
    spec.setdefault("publishNotReadyAddresses", False)


def _namespace(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _node(node: Object) -> None:
    node.setdefault("spec", {})
    node["metadata"].setdefault("labels", {}).setdefault("kubernetes.io/hostname", node["metadata"]["name"])


def _quality(spec: Object) -> str:
    resources = [container["resources"] for container in spec["containers"]]
    if not any(container.get("requests") or container.get("limits") for container in resources):
        return "BestEffort"
    same = all(container.get("requests") == container.get("limits") for container in resources)
    return (
        "Guaranteed"
        if same and all({"cpu", "memory"} <= set(container["limits"]) for container in resources)
        else "Burstable"
    )


_DEFAULTS: dict[Resource, Callable[[Object], None]] = {
    PODS: _pod,
    JOBS: _job,
    JOB_SETS: _job_set,
    SERVICES: _service,
    NODES: _node,
    NAMESPACES: _namespace,
}
