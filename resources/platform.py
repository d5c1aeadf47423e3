"""The platform's settings: one YAML file says what a cluster has, where an embedded instance has its home.

``slipway: platform/1`` is its first line; SLIPWAY_PLATFORM names it. A secret is never in it: a field ending in
`_file` names the file that holds one, and credentials of an object store come from the environment (AWS_*).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, create_model, model_validator

from recipes import yaml_lines
from recipes.kubernetes import Quantity
from recipes.parts import Part, Text
from recipes.problems import Fault, InvalidRecipes, Place, Problem, dotted, shown
from recipes.strict import Refused, validate
from resources.kubernetes.cluster import Cluster
from resources.tiers import Tiers
from trainer.invalid import require

VARIABLE = "SLIPWAY_PLATFORM"

_TIERS: dict[str, Any] = {name: (each.annotation, each) for name, each in Tiers.model_fields.items()}
TierSettings = create_model("TierSettings", __base__=Part, **_TIERS)
"""The fields of the resource `Tiers`, typed as strictly as a recipe's."""


class TrackingSettings(Part):
    """Where MLflow is."""

    uri: Text | None = None
    """`http://…`; what has a password in it goes into a file."""
    uri_file: Text | None = None
    """The file that holds it, a mounted secret."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        require((self.uri is None) != (self.uri_file is None), "uri", "expected one of uri and uri_file")
        require("@" not in (self.uri or ""), "uri", "expected no user and password here; write the URI into a uri_file")
        return self

    def address(self) -> str:
        """The URI. Raises OSError when the file that has it cannot be read."""
        return self.uri or Path(self.uri_file or "").read_text().strip()


class NodeTaskSettings(Part):
    """The pods that do something on one node: stage, remove what is old, look at the disk."""

    resources: dict[str, Quantity] = Field(default={"cpu": "4", "memory": "4Gi"})
    """What each is given, as requests and as limits; it needs no GPU."""
    priority: str = ""
    """Their PriorityClass."""


class ComputeSettings(Part):
    """How jobs are run on the cluster, and what its nodes give them."""

    launcher: Literal["jobset", "job", "trainjob", "pytorchjob"] = "jobset"
    """The kind of object that runs a training's pods; `job` needs nothing installed."""
    kubeconfig: str = ""
    """The path of a kubeconfig; empty inside the cluster, where pods have a service account."""
    context: str = ""
    """One of the kubeconfig's contexts; empty for its current one."""
    cluster: Cluster
    node_tasks: NodeTaskSettings = NodeTaskSettings()


class Platform(Part):
    """Everything that differs between clusters."""

    FORMAT: ClassVar = "platform/1"

    tiers: TierSettings
    tracking: TrackingSettings
    compute: ComputeSettings
    revision: str = ""
    """Revision of the code, recorded in every checkpoint."""


def named(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file that SLIPWAY_PLATFORM names; None where the instance is embedded."""
    return Path(environ[VARIABLE]) if environ.get(VARIABLE) else None


def load(path: Path) -> Platform:
    """The settings in a file. Raises InvalidRecipes with all that is wrong with them, by line."""
    file = str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        wanted = f"the platform's settings (a file that begins slipway: {Platform.FORMAT})"
        raise InvalidRecipes([Problem(Place(file), "", str(error.strerror), wanted)]) from None
    document, problems = yaml_lines.read(data, file)
    if document is None or problems:
        raise InvalidRecipes(problems)
    faults = _header_faults(document.value)
    if not faults:
        try:
            return validate(Platform, {name: each for name, each in document.value.items() if name != "slipway"})
        except Refused as refused:
            faults = refused.faults
    raise InvalidRecipes(
        Problem(document.place(fault.path), dotted(fault.path), fault.found, fault.expected) for fault in faults
    )


def _header_faults(value: Any) -> list[Fault]:
    if not isinstance(value, dict):
        return [Fault((), shown(value), f"settings that begin slipway: {Platform.FORMAT}")]
    header = value.get("slipway")
    if header == Platform.FORMAT:
        return []
    return [Fault(("slipway",), "nothing" if header is None else shown(header), Platform.FORMAT)]
