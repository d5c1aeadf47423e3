"""Platform settings: one YAML file that describes a cluster. An embedded instance needs none.

SLIPWAY_PLATFORM names the file; its first line is ``slipway: platform/1``. The file never holds a secret: a field that
ends in `_file` names the file with the secret, and object store credentials come from the environment (AWS_*).
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
MOUNTED = "none, since the settings are shown and stored: mount a Secret as a file (`patch`) and name that file"

_TIERS: dict[str, Any] = {name: (info.annotation, info) for name, info in Tiers.model_fields.items()}
TierSettings = create_model("TierSettings", __base__=RecipeSection, **_TIERS)
"""The fields of the resource `Tiers`, validated as strictly as a recipe."""


def _kind_of_workload(name: str) -> str:
    if name not in KINDS:
        raise ValueError(f"expected one of {', '.join(KINDS)}")
    return name


WorkloadName = Annotated[str, AfterValidator(_kind_of_workload), Field(json_schema_extra={"enum": list(KINDS)})]
"""A settings field for a kind of workload."""


def _hardware_profile(name: str) -> str:
    if name and name not in PROFILES:
        raise ValueError(f"expected one of {', '.join(PROFILES)}, or nothing")
    return name


ProfileName = Annotated[str, AfterValidator(_hardware_profile), Field(json_schema_extra={"enum": ["", *PROFILES]})]
"""A settings field for a hardware profile; empty for none."""


class TrackingSettings(RecipeSection):
    """The address of MLflow."""

    uri: PublicAddress | None = None
    """The URI of MLflow, `http://…`. If it contains a password, use `uri_file`."""
    uri_file: Text | None = None
    """A file that holds the URI with its password, `https://user:password@host`, such as a mounted Secret."""
    token_file: str = ""
    """The file with Slipway's own token, by which MLflow recognises the platform if roles are on; the chart sets it."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        require((self.uri is None) != (self.uri_file is None), "uri", "expected one of uri and uri_file")
        require(not self.token_file or self.uri is not None, "token_file", "expected none without uri")
        return self


class NodeTaskSettings(RecipeSection):
    """The pods of node tasks, which stage data on one node, remove old data there and measure its disk."""

    resources: dict[str, Quantity] = Field(default={"cpu": "4", "memory": "4Gi"})
    """The limits of each pod, and its requests unless `requests` sets them. The pod needs no GPU."""
    requests: dict[str, Quantity] = Field(default={})
    """The requests of each pod, if they are lower than its limits."""
    priority: str = ""
    """The PriorityClass of these pods."""


def _scheduler(address: str) -> str:
    if not re.fullmatch(r"tls://[^\s/:@]+:[0-9]{1,5}", address):
        raise ValueError("expected tls://HOST:PORT: without certificates, anybody who reaches it can run any code")
    return address


class DaskSettings(RecipeSection):
    """The Dask cluster whose workers read, clean and encode the documents of datasets (docs/datasets.md)."""

    scheduler: Annotated[str, AfterValidator(_scheduler)]
    """The address of the scheduler, such as `tls://host:8786`."""
    certificates: Text
    """The folder with ca.crt, tls.crt and tls.key. Only the processes of the Dask cluster may have these files."""


class ComputeSettings(RecipeSection):
    """How jobs run on the cluster, and which resources they get."""

    launcher: WorkloadName = JobSet.name
    """The kind of Kubernetes object that runs the pods of a training. `job` needs no extra controller."""
    hardware: ProfileName = ""
    """The hardware profile of the cluster, which trainings must fit (`slipway plan --on`); empty for no check."""
    kubeconfig: str = ""
    """The path of a kubeconfig; leave it empty inside the cluster, where pods use their service account."""
    context: str = ""
    """The context of the kubeconfig; empty for its current context."""
    cluster: Cluster
    node_tasks: NodeTaskSettings = NodeTaskSettings()
    steps: StepSettings = StepSettings()
    """The resources of the pods of heavy steps: building a dataset, evaluating, restoring."""
    dask: DaskSettings | None = None
    """The Dask workers that build datasets; without it, each step builds in its own pod."""
    quarantine: HealthRules = HealthRules()
    """When a suspected node is taken out of service. Without `apply`, the suspicion is only recorded."""

    serving: ServingSettings | None = None
    """How models are served (`slipway models serve`); without it, this cluster serves no models."""

    @field_validator("cluster")
    @classmethod
    def _has_no_secret(cls, cluster: Cluster) -> Cluster:
        for variable in credentials.secret_variables(cluster.environment):
            raise RefusedValue([RecipeFault(("environment", variable), "a secret", MOUNTED)])
        return cluster


class OpenLineageSettings(RecipeSection):
    """The target of OpenLineage events."""

    url: PublicAddress = ""
    """The URL that receives the events, such as `http://host:5000/api/v1/lineage`."""
    file: str = ""
    """A file to which the events are appended, one per line."""
    key_file: str = ""
    """The file with the API key of that server, such as a mounted Secret."""

    @model_validator(mode="after")
    def _is_one_at_most(self) -> Self:
        require(not (self.url and self.file), "url", "expected one of url and file")
        require(not self.key_file or bool(self.url), "key_file", "expected none without url")
        return self


class PageSettings(RecipeSection):
    """The addresses at which people open the web pages, used for links between them."""

    dagster: PublicAddress = ""
    """The address of the webserver, such as `https://slipway.example`; empty for `notifications.address`, if set."""
    mlflow: PublicAddress = ""
    """The address of MLflow; empty for `tracking.uri`."""


class Platform(CostSettings):
    """Everything that differs between clusters."""

    FORMAT: ClassVar = "platform/1"

    tiers: TierSettings
    tracking: TrackingSettings
    compute: ComputeSettings
    user_header: PersonHeader = ""
    """The header in which a proxy in front of the webserver sends the person's name; empty without such a proxy."""
    operators: list[PersonName] = Field(default_factory=list)
    """The people who may start, stop and change things. Promoters may too. If the list is empty, everybody may."""
    promoters: list[PersonName] = Field(default_factory=list)
    """The people who may promote, roll back, demote, approve and thaw models. If the list is empty, everybody may."""
    openlineage: OpenLineageSettings = OpenLineageSettings()
    """The target of OpenLineage events of snapshots, trainings and checkpoints; without it, none are sent."""
    pages: PageSettings = PageSettings()
    """The addresses of Dagster and MLflow; without them, runs in MLflow do not link to Dagster."""
    revision: str = ""
    """The revision of the code, recorded in every checkpoint; empty for the revision of the image."""
    notifications: NotificationSettings | None = None
    """Who receives notifications of incidents, of tasks for a person, and more; without it, nobody does."""

    @model_validator(mode="after")
    def _knows_its_operators(self) -> Self:
        expected = "expected the header in which the proxy sends the person's name, since there are operators"
        require(bool(self.user_header) or not self.operators, "user_header", expected)
        return self

    @property
    def dagster_page(self) -> str:
        """The address of the webserver, or "" if no setting gives it."""
        return self.pages.dagster or (self.notifications.address if self.notifications else "")


def named(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The file that SLIPWAY_PLATFORM names, or None for an embedded instance."""
    return Path(environ[VARIABLE]) if environ.get(VARIABLE) else None


def dask_here() -> DaskSettings | None:
    """The Dask cluster of the settings that SLIPWAY_PLATFORM names, or None."""
    file = named()
    return load(file).compute.dask if file else None


def costs_here() -> CostSettings:
    """Prices and quotas from the settings that SLIPWAY_PLATFORM names, else from the embedded instance's home."""
    file = named()
    return _settings(file) if file else cost_settings.of_home(Home.of().root)


@functools.cache
def _settings(file: Path) -> Platform:
    return load(file)


def load(path: Path) -> Platform:
    """The settings in a file. Raises InvalidRecipes with every problem and its line."""
    return settings_file.load(path, Platform, Platform.FORMAT, "the platform's settings")
