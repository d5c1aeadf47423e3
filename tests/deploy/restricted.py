"""The Pod Security Standard `restricted`, as far as the fields of a pod go.

After https://kubernetes.io/docs/concepts/security/pod-security-standards/ (Kubernetes 1.37).
"""

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SECCOMP = {"RuntimeDefault", "Localhost"}


def violations(spec: dict[str, Any]) -> list[str]:
    """The violations of the standard in a pod's spec."""
    return [
        *_of_pod(spec),
        *(violation for container in _containers(spec) for violation in _of_container(container, spec)),
    ]


def _containers(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for field in ("containers", "initContainers", "ephemeralContainers"):
        yield from spec.get(field) or ()


def _of_pod(spec: dict[str, Any]) -> Iterator[str]:
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    for volume in spec.get("volumes") or ():
        yield from (f"volume {volume['name']}: {kind}" for kind in set(volume) - {"name"} - VOLUMES)
    if spec.get("securityContext", {}).get("sysctls"):
        yield "sysctls"


def _of_container(container: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    name, own = container["name"], container.get("securityContext") or {}
    security_context = {**(spec.get("securityContext") or {}), **own}
    if own.get("privileged") or own.get("procMount", "Default") != "Default":
        yield f"{name}: privileged"
    if own.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation"
    capabilities = own.get("capabilities") or {}
    if capabilities.get("drop") != ["ALL"] or set(capabilities.get("add") or ()) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities"
    if security_context.get("runAsNonRoot") is not True or security_context.get("runAsUser") == 0:
        yield f"{name}: may run as root"
    if (security_context.get("seccompProfile") or {}).get("type") not in SECCOMP:
        yield f"{name}: seccompProfile"
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield f"{name}: hostPort"
