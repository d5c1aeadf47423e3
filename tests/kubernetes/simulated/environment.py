"""The environment and the command line of a container (k8s.io/kubernetes/pkg/kubelet)."""

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.kubernetes.simulated.dns import HOME
from tests.kubernetes.simulated.kinds import Object
from tests.kubernetes.simulated.quantities import amount

ROOT = Path(__file__).parents[3]
"""The working folder of the image, and where its Python finds the trainer."""
INHERITED = re.compile(r"HOME|LANG|LC_.*|LD_LIBRARY_PATH|TMPDIR|SLIPWAY_TEST|COVERAGE_.*|COV_CORE_.*")
"""The variables of this machine that an image would have; none that only the control plane has."""


def environment(pod: Object, container: Object) -> dict[str, str]:
    """The image's variables, then the container's in their order, each of which may mention those before it."""
    variables = {name: value for name, value in os.environ.items() if INHERITED.fullmatch(name)}
    variables |= {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
    }
    for variable in container.get("env") or ():
        source = variable.get("valueFrom")
        variables[variable["name"]] = (
            _value(pod, container, source) if source else expanded(variable.get("value", ""), variables)
        )
    return variables


def command_line(container: Object, environment: Mapping[str, str]) -> list[str]:
    arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expanded(word, environment) for word in arguments]


def expanded(text: str, environment: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced where NAME is known, ``$$`` by ``$``."""
    return re.sub(
        r"\$(?:\$|\(([A-Za-z_][\w.-]*)\))",
        lambda match: "$" if match[0] == "$$" else environment.get(match[1], match[0]),
        text,
    )


def _value(pod: Object, container: Object, source: Object) -> str:
    if "fieldRef" in source:
        return _field(pod, source["fieldRef"]["fieldPath"])
    assert "resourceFieldRef" in source, f"a variable from {source} is not simulated"
    reference = source["resourceFieldRef"]
    kind, _, resource = reference["resource"].partition(".")
    quantity = amount((container["resources"].get(kind) or {}).get(resource, "1"))
    return str(math.ceil(quantity / amount(reference.get("divisor") or "1")))


def _field(pod: Object, path: str) -> str:
    if matched := re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path):
        return str((pod["metadata"].get(matched[1]) or {}).get(matched[2], ""))
    if path in ("status.podIP", "status.hostIP"):
        return HOME
    section, _, field = path.partition(".")
    return str(pod[section].get(field, ""))
