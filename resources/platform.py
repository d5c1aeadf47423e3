"""The platform's settings: one YAML file that describes a cluster. An embedded instance needs none.

SLIPWAY_PLATFORM names the file; its first line is ``slipway: platform/1``. It never holds a secret: a field that ends
in `_file` names the file that does, and credentials of an object store come from the environment (AWS_*).
"""

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from slipway.recipes.kubernetes import Quantity
from slipway.recipes.parts import RecipeSection, Text
from slipway.recipes.problems import RecipeFault
from slipway.recipes.strict import RefusedValue
from slipway.resources import cost_settings, credentials, settings_file
from slipway.resources.cost_settings import CostSettings
from slipway.resources.credentials import PublicAddress
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.home import Home
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.notify.settings import NotificationSettings
from slipway.resources.people import PersonHeader, PersonName
from slipway.resources.serving.settings import ServingSettings
from slipway.resources.steps import StepSettings
from slipway.resources.tiers import Tiers
from slipway.trainer.base.invalid import require
from slipway.trainer.config.profiles import PROFILES

VARIABLE = "SLIPWAY_PLATFORM"
MOUNTED = "none in the settings, which are shown and stored: mount a Secret as a file (`patch`) and name the file"

_TIERS: dict[str, Any] = {name: (info.annotation, info) for name, info in Tiers.model_fields.items()}
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
    token_file: str = ""
    """The file of Slipway's own token, from which MLflow with roles knows the platform; the chart writes it."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        require((self.uri is None) != (self.uri_file is None), "uri", "expected one of uri and uri_file")
        require(not self.token_file or self.uri is not None, "token_file", "expected none without uri")
        return self


class NodeTaskSettings(RecipeSection):
    """The pods of node tasks, which stage data, remove old data and measure the disk of one node."""

    resources: dict[str, Quantity] = Field(default={"cpu": "4", "memory": "4Gi"})
    """What each pod gets: its limits, and its requests but for `requests`; it needs no GPU."""
    requests: dict[str, Quantity] = Field(default={})
    """What is reserved for each pod where that is less than its limits."""
    priority: str = ""
    """The PriorityClass of these pods."""


def _scheduler(address: str) -> str:
    if not re.fullmatch(r"tls://[^\s/:@]+:[0-9]{1,5}", address):
        raise ValueError("expected tls://HOST:PORT: who may reach a scheduler without certificates may run any code")
    return address


class DaskSettings(RecipeSection):
    """The cluster of Dask whose workers read, clean and encode the documents of datasets (docs/datasets.md)."""

    scheduler: Annotated[str, AfterValidator(_scheduler)]
    """The address of its scheduler: `tls://host:8786`."""
    certificates: Text
    """The folder of ca.crt, tls.crt and tls.key, which all processes of the cluster have, and no others."""


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
    steps: StepSettings = StepSettings()
    """What the pods of heavy steps get: building a dataset, evaluating, restoring."""
    dask: DaskSettings | None = None
    """The workers that build datasets; without it, each step builds in its own pod."""
    quarantine: HealthRules = HealthRules()
    """When a node that something speaks against is taken out of service; without `apply`, it is only recorded."""

    serving: ServingSettings | None = None
    """How models are served (`slipway models serve`); without it, they are not served on this cluster."""

    @field_validator("cluster")
    @classmethod
    def _has_no_secret(cls, cluster: Cluster) -> Cluster:
        if named := credentials.secret_variables(cluster.environment):
            raise RefusedValue([RecipeFault(("environment", named[0]), "a secret", MOUNTED)])
        return cluster


class OpenLineageSettings(RecipeSection):
    """Where OpenLineage events go."""

    url: PublicAddress = ""
    """Where they are posted: `http://host:5000/api/v1/lineage`."""
    file: str = ""
    """A file to which they are appended, one a line."""
    key_file: str = ""
    """The file with the key that the server asks for, such as a mounted secret."""

    @model_validator(mode="after")
    def _is_one_at_most(self) -> Self:
        require(not (self.url and self.file), "url", "expected one of url and file")
        require(not self.key_file or bool(self.url), "key_file", "expected none without url")
        return self


class PageSettings(RecipeSection):
    """Where people open the servers in a browser, for the links from one to the other."""

    dagster: PublicAddress = ""
    """The webserver's, `https://slipway.example`; empty for the `address` of `notifications`, where that is set."""
    mlflow: PublicAddress = ""
    """MLflow's; empty for `tracking.uri`."""


class Platform(CostSettings):
    """Everything that differs between clusters."""

    FORMAT: ClassVar = "platform/1"

    tiers: TierSettings
    tracking: TrackingSettings
    compute: ComputeSettings
    user_header: PersonHeader = ""
    """The header in which a proxy in front of the webserver names the person; empty without such a proxy."""
    operators: list[PersonName] = Field(default_factory=list)
    """The people who may start, stop and change things, besides the promoters; without any, everybody may."""
    promoters: list[PersonName] = Field(default_factory=list)
    """The people who may promote, roll back, demote, approve and thaw models; without any, everybody may."""
    openlineage: OpenLineageSettings = OpenLineageSettings()
    """Where OpenLineage events of snapshots, trainings and checkpoints go; without it, none are sent."""
    pages: PageSettings = PageSettings()
    """Where people open Dagster and MLflow; without it, the runs of MLflow do not link to Dagster."""
    revision: str = ""
    """Revision of the code, recorded in every checkpoint."""
    notifications: NotificationSettings | None = None
    """Who is notified of incidents, of what waits for a person, and more; without it, nobody."""

    @model_validator(mode="after")
    def _knows_its_operators(self) -> Self:
        expected = "expected the header in which the proxy names the person, since operators are named"
        require(bool(self.user_header) or not self.operators, "user_header", expected)
        return self

    @property
    def dagster_page(self) -> str:
        """Where people open the webserver; empty where no setting says it."""
        return self.pages.dagster or (self.notifications.address if self.notifications else "")


def named(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file that SLIPWAY_PLATFORM names; None for an embedded instance."""
    return Path(environ[VARIABLE]) if environ.get(VARIABLE) else None


def dask_here() -> DaskSettings | None:
    """The cluster of Dask in the settings that SLIPWAY_PLATFORM names; None without them, or without one."""
    file = named()
    return load(file).compute.dask if file else None


def costs_here() -> CostSettings:
    """Prices and quotas by the settings that SLIPWAY_PLATFORM names, else by those in the embedded instance's home."""
    file = named()
    return _settings(file) if file else cost_settings.of_home(Home.of().root)


@functools.cache
def _settings(file: Path) -> Platform:
    return load(file)


def load(path: Path) -> Platform:
    """The settings in a file. Raises InvalidRecipes with every problem and its line."""
    return settings_file.load(path, Platform, Platform.FORMAT, "the platform's settings")
