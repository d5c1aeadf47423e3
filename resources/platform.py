"""The platform's settings: one YAML file that describes a cluster. An embedded instance needs none.

SLIPWAY_PLATFORM names the file; its first line is ``slipway: platform/1``. It never holds a secret: a field that ends
in `_file` names the file that does, and credentials of an object store come from the environment (AWS_*).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from recipes import yaml_lines
from recipes.kubernetes import Quantity
from recipes.parts import RecipeSection, Text
from recipes.problems import InvalidRecipes, Place, Problem, RecipeFault, dotted, shown
from recipes.strict import RefusedValue, validate
from resources import credentials
from resources.credentials import PublicAddress
from resources.fleet.health.standing import HealthRules
from resources.kubernetes.cluster import Cluster
from resources.launchers.kubernetes.workloads import KINDS
from resources.launchers.kubernetes.workloads.jobset import JobSet
from resources.tiers import Tiers
from trainer.base.invalid import require
from trainer.config.profiles import PROFILES

VARIABLE = "SLIPWAY_PLATFORM"
MOUNTED = "none in the settings, which are shown and stored: mount a Secret as a file (`patch`) and name the file"

_TIERS: dict[str, Any] = {name: (each.annotation, each) for name, each in Tiers.model_fields.items()}
TierSettings = create_model("TierSettings", __base__=RecipeSection, **_TIERS)
"""The fields of the resource `Tiers`, typed as strictly as a recipe's."""


def _kind_of_workload(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}")
    return name


WorkloadName = Annotated[str, AfterValidator(_kind_of_workload), Field(json_schema_extra={"enum": list(KINDS)})]
"""The name of a kind of workload in the settings."""


def _hardware_profile(name: str) -> str:
    if name and name not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}, or nothing")
    return name


ProfileName = Annotated[str, AfterValidator(_hardware_profile), Field(json_schema_extra={"enum": ["", *PROFILES]})]
"""The name of a hardware profile in the settings."""


class TrackingSettings(RecipeSection):
    """The address of MLflow."""

    uri: PublicAddress | None = None
    """`http://…`; a URI with a password belongs into a file."""
    uri_file: Text | None = None
    """The file that holds the URI, such as a mounted secret: `https://user:password@host`."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        require((self.uri is None) != (self.uri_file is None), "uri", "expected one of uri and uri_file")
        return self


class NodeTaskSettings(RecipeSection):
    """The pods of node tasks, which stage data, remove old data and measure the disk of one node."""

    resources: dict[str, Quantity] = Field(default={"cpu": "4", "memory": "4Gi"})
    """What each pod gets, as requests and as limits; it needs no GPU."""
    priority: str = ""
    """The PriorityClass of these pods."""


class ComputeSettings(RecipeSection):
    """How jobs run on the cluster, and what its nodes give them."""

    launcher: WorkloadName = JobSet.name
    """The kind of object that runs a training's pods; `job` needs nothing installed."""
    hardware: ProfileName = ""
    """The profile of the cluster's hardware, which trainings must fit (`slipway plan --on`); empty for none."""
    kubeconfig: str = ""
    """The path of a kubeconfig; empty inside the cluster, where pods have a service account."""
    context: str = ""
    """One of the kubeconfig's contexts; empty for its current one."""
    cluster: Cluster
    node_tasks: NodeTaskSettings = NodeTaskSettings()
    quarantine: HealthRules = HealthRules()
    """When a node that something speaks against is taken out of service; without `apply`, it is only recorded."""

    @field_validator("cluster")
    @classmethod
    def _has_no_secret(cls, cluster: Cluster) -> Cluster:
        if named := credentials.secret_variables(cluster.environment):
            raise RefusedValue([RecipeFault(("environment", named[0]), "a secret", MOUNTED)])
        return cluster


class Platform(RecipeSection):
    """Everything that differs between clusters."""

    FORMAT: ClassVar = "platform/1"

    tiers: TierSettings
    tracking: TrackingSettings
    compute: ComputeSettings
    revision: str = ""
    """Revision of the code, recorded in every checkpoint."""


def named(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file that SLIPWAY_PLATFORM names; None for an embedded instance."""
    return Path(environ[VARIABLE]) if environ.get(VARIABLE) else None


def load(path: Path) -> Platform:
    """The settings in a file. Raises InvalidRecipes with every problem and its line."""
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
        except RefusedValue as refused:
            faults = refused.faults
    raise InvalidRecipes(
        Problem(document.place(fault.path), dotted(fault.path), fault.found, fault.expected) for fault in faults
    )


def _header_faults(value: Any) -> list[RecipeFault]:
    if not isinstance(value, dict):
        return [RecipeFault((), shown(value), f"settings that begin slipway: {Platform.FORMAT}")]
    header = value.get("slipway")
    if header == Platform.FORMAT:
        return []
    return [RecipeFault(("slipway",), "nothing" if header is None else shown(header), Platform.FORMAT)]
