"""The rules of the Pod Security Standard `restricted`.

By https://kubernetes.io/docs/concepts/security/pod-security-standards/: the fields that it names; a field that may be
set on the pod or on each container counts where it is set last.
"""

from collections.abc import Iterator, Mapping
from typing import Any

VOLUMES = {
    *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected"),
    "secret",
}
PROFILES = ("RuntimeDefault", "Localhost")


def violations(spec: Mapping[str, Any]) -> list[str]:
    """The violations in a pod's spec; none for a pod that passes."""
    return [
        *_of_pod(spec),
        *(violation for container in _containers(spec) for violation in _of_container(spec, container)),
    ]


def _of_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{field} is set" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    for volume in spec.get("volumes", ()):
        if foreign := set(volume) - {"name"} - VOLUMES:
            yield f"volume {volume['name']} is a {' '.join(foreign)}"
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls are set"


def _of_container(spec: Mapping[str, Any], container: Mapping[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    effective = {**spec.get("securityContext", {}), **own}
    capabilities = own.get("capabilities", {})
    wrong = {
        "runs as root": not effective.get("runAsNonRoot") or effective.get("runAsUser") == 0,
        "may gain privileges": own.get("allowPrivilegeEscalation") is not False or own.get("privileged"),
        "keeps capabilities": "ALL" not in capabilities.get("drop", ()),
        "adds capabilities": set(capabilities.get("add", ())) - {"NET_BIND_SERVICE"},
        "has no seccomp profile": effective.get("seccompProfile", {}).get("type") not in PROFILES,
        "has a port of the host": any(port.get("hostPort") for port in container.get("ports", ())),
        "unmasks /proc": own.get("procMount", "Default") != "Default",
    }
    yield from (f"container {container['name']} {what}" for what, is_so in wrong.items() if is_so)


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (*spec["containers"], *spec.get("initContainers", ()), *spec.get("ephemeralContainers", ()))
