"""The chart's values as types: `deploy/chart/values.schema.json` is made from them, so that Helm refuses a typo.

Fields that the platform's settings and the chart share (the image, the namespace, the claims) are values of the chart
only, and the chart writes them into the settings.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.deploy.cluster.components import (
    Bucket,
    Component,
    Dask,
    Image,
    Logs,
    Metrics,
    MountPath,
    Name,
    PeerValues,
    Replicated,
    Seconds,
)
from slipway.deploy.cluster.sections import Values, without
from slipway.recipes.parts import Count
from slipway.resources.cost_settings import PriceSettings
from slipway.resources.fleet.health.standing import HealthRules
from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.notify.settings import NotificationSettings
from slipway.resources.platform import (
    NodeTaskSettings,
    OpenLineageSettings,
    PageSettings,
    ProfileName,
    TierSettings,
    WorkloadName,
)
from slipway.resources.serving.settings import ServingSettings
from slipway.resources.steps import StepSettings
from slipway.resources.teams import TeamName, TeamSettings

CHART = Path(__file__).parent.parent / "chart"
SCHEMA = CHART / "values.schema.json"
PublicUri = Annotated[str, Field(pattern=r"^[^@]*$")]
"""An address that ends in a ConfigMap: it has no user and no password."""
OF_THE_CHART = {
    "tiers": ("durable", "nvme"),
    "cluster": (
        *("image", "namespace", "pull_policy", "service_account", "volumes", "user", "recipe_patch"),
        "network_policy",
    ),
}
"""Fields of the platform's settings that follow from other values."""


class ImageValues(Values):
    platform: Image
    """The image of webserver, daemon, code location, runs and MLflow; with a digest or a tag."""
    trainer: Image
    """The image of trainings' pods; with a digest or a tag."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]  # noqa: N815
    """The pull policy of all pods."""
    pullSecrets: list[Name]  # noqa: N815
    """Existing Secrets of the image registry, in both namespaces."""


class PostgreSQL(PeerValues):
    secret: Name
    """An existing Secret with the key `pg_service.conf`: the services `dagster` and `mlflow`, passwords included."""


class ObjectStoreValues(PeerValues):
    secret: Name | Literal[""]
    """An existing Secret, in both namespaces, with the key `credentials`: a credentials file in AWS's format."""
    endpoint: str
    """The URL of the object store; empty for AWS's."""
    region: str
    """The region, where the store has regions."""
    artefacts: Bucket
    """Where MLflow keeps artefacts: s3://bucket/prefix. Empty: MLflow serves no artefacts."""


class CheckpointValues(Values):
    secret: Name | Literal[""]
    """An existing Secret, in both namespaces: each of its keys is a file in /secrets/checkpoints with one key of
    checkpoints, in the pods that read or write them (trainings, evaluations, drills); empty for none."""


class VolumeClaim(Values):
    claim: Name | Literal[""]
    """The PersistentVolumeClaim."""
    path: MountPath
    """The path of its mount."""


class Volumes(Values):
    durable: VolumeClaim
    """The durable tier: a claim of this name in both namespaces."""
    nvme: VolumeClaim
    """Each node's own disk: a claim in the namespace of trainings."""
    corpora: VolumeClaim
    """The sources of datasets, read-only: a claim in the control plane's namespace; empty for none."""


class MLflow(Replicated):
    enabled: bool
    """False where a server exists already; write its address into `platform.tracking`."""
    hosts: list[str]
    """Host names under which browsers reach it from outside, besides those of its Service."""


class Webserver(Replicated):
    readOnly: bool  # noqa: N815
    """Whether the UI can only show, and start or stop nothing."""
    hosts: list[str]
    """Host names under which browsers reach the UI, besides `identity.hosts.webserver` and those of its Service."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """NetworkPolicyPeers, such as the ingress controller, that may reach both UIs. None: only port-forwarding."""


class PageHosts(Values):
    webserver: Name | Literal[""]
    """The host under which people open the UI; empty: no proxy is in front of it."""
    mlflow: Name | Literal[""]
    """That of MLflow."""
    serving: Name | Literal[""]
    """That of served models."""


class IdentityIngress(Values):
    className: Name | Literal[""]  # noqa: N815
    """The class of the Ingresses; empty: none is made."""
    tlsSecret: Name | Literal[""]  # noqa: N815
    """An existing Secret with the certificate of all hosts; required with a class."""


class Identity(PeerValues):
    """Who comes in, and who may do what."""

    secret: Name | Literal[""]
    """An existing Secret: `token`, which requests to the webserver carry, and `oauth2-proxy.cfg`; empty: no token."""
    issuer: Annotated[str, Field(pattern=r"^(https://[^@\s]+)?$")]
    """The address of the OpenID Connect issuer; empty: no proxy of this chart."""
    clientId: str  # noqa: N815
    """The proxy's name at the issuer."""
    hosts: PageHosts
    """The hosts of the pages behind the proxy."""
    userHeader: str  # noqa: N815
    """The header in which a proxy of one's own names the person who asks; empty without one."""
    operators: list[str]
    """The people who start, stop and change things, besides promoters, as the proxy names them; empty: everybody."""
    promoters: list[str]
    """The people who decide about champions; empty: everybody who operates."""
    ingress: IdentityIngress
    """The Ingresses in front of the proxy."""


class Proxy(Replicated):
    image: Image | Literal[""]
    """oauth2-proxy's image; required with an issuer."""


class Dex(Component):
    image: Image | Literal[""]
    """dex's image; empty: the issuer is somebody else's."""
    secret: Name | Literal[""]
    """An existing Secret with the key `config.yaml`: dex's configuration, with `web: {http: 0.0.0.0:5556}`."""
    host: Name | Literal[""]
    """The host of the issuer's address."""


class RunCounts(Values):
    """A number of runs for each kind of work that has a limit (`slipway.resources.run_kinds`)."""

    training: Count
    """Runs that wait for a training; one for each that is under way. The trainings themselves do not wait for them."""
    sweep: Count
    """Runs that wait for the trials of a sweep; one for each sweep that is under way."""
    data: Count
    """Runs that make datasets and suites."""
    evaluation: Count
    """Runs that measure checkpoints, or repeat some of their steps."""
    model: Count
    """Runs that register, judge, export and serve models."""
    staging: Count
    """Runs that stage shards; one for each node and dataset."""
    upkeep: Count
    """Runs that are due periodically: retention, backups, drills, reports."""


class Runs(Component):
    """Dagster's own runs: jobs that make datasets, submit trainings and watch them."""

    maxConcurrent: RunCounts  # noqa: N815
    """How many runs of a kind run at once; the others of that kind wait. Verbs and recovery have no limit."""
    startTimeoutSeconds: Seconds  # noqa: N815
    """Seconds after which a run that has not begun is given up: longer than a fresh node needs to pull the image."""
    keepSeconds: Seconds  # noqa: N815
    """Seconds that the pods of ended runs stay, for inspection."""


class TrainingValues(Values):
    namespace: Name
    """The namespace of trainings' pods; the objects of deploy/platform create it."""


class Network(Values):
    enabled: bool
    """Whether to create NetworkPolicies. They hold only where the network plugin enforces them."""
    apiServer: PeerValues  # noqa: N815
    """The API server as pods reach it: the endpoints of the Service `kubernetes`, after address translation."""
    dns: PeerValues
    """The cluster's DNS."""
    notices: PeerValues
    """What notifications and OpenLineage events are sent to, where `platform` has these sections."""


class TrackingValues(Values):
    uri: PublicUri
    """The address of the MLflow server, without user and password; empty for the chart's own, or with a `secret`."""
    secret: Name | Literal[""]
    """An existing Secret with the key `uri`, for an address with a user and password: https://user:password@host."""


Tiers = without(TierSettings, OF_THE_CHART["tiers"], "Tiers")
NodeTasks = without(NodeTaskSettings, (), "NodeTasks")
Steps = without(StepSettings, (), "Steps")
Serving = without(ServingSettings, ("front_image",), "Serving")
PageValues = without(PageSettings, (), "PageValues")
Quarantine = without(HealthRules, (), "Quarantine")
PriceValues = without(PriceSettings, (), "PriceValues")
TeamValues = without(TeamSettings, (), "TeamValues")
Notifications = without(NotificationSettings, (), "Notifications")
OpenLineage = without(OpenLineageSettings, (), "OpenLineage")
Nodes = without(Cluster, OF_THE_CHART["cluster"], "Nodes")


class PlatformValues(Values):
    """The platform's settings that do not follow from other values."""

    launcher: WorkloadName
    """The kind of object that runs a training's pods; `job` needs nothing installed."""
    hardware: ProfileName
    """The profile of the cluster's hardware, which trainings must fit; empty for none."""
    node_tasks: NodeTasks  # type: ignore[valid-type]
    """The pods that stage, clean and measure one node."""
    steps: Steps  # type: ignore[valid-type]
    """The pods of heavy steps: building a dataset, evaluating, restoring."""
    serving: Serving  # type: ignore[valid-type]
    """How models are served; its `image` is vLLM's. Empty: they are not."""
    revision: str
    """Revision of the code in the images, recorded in every checkpoint; empty for what the images say themselves."""
    tiers: Tiers  # type: ignore[valid-type]
    """The tiers of storage besides the mounted volumes."""
    tracking: TrackingValues
    """The address of MLflow, if the chart's own is not used."""
    pages: PageValues  # type: ignore[valid-type]
    """Where people open Dagster and MLflow in a browser, for the links from one to the other."""
    quarantine: Quarantine  # type: ignore[valid-type]
    """When nodes are taken out of service, and measured. With `apply`, the code location may cordon nodes."""
    prices: PriceValues  # type: ignore[valid-type]
    """What a rank-hour costs; empty: costs are given in rank-hours alone."""
    teams: dict[TeamName, TeamValues]  # type: ignore[valid-type]
    """Quotas and prices of teams, by name; empty: no team has a quota."""
    notifications: Notifications  # type: ignore[valid-type]
    """Whom to tell of incidents and of what waits for a person; empty: nobody."""
    openlineage: OpenLineage  # type: ignore[valid-type]
    """Where OpenLineage events go; empty: none are sent."""
    secret: Name | Literal[""]
    """An existing Secret: each of its keys is a file in /secrets/platform, for the fields that end in `_file`."""
    cluster: Nodes  # type: ignore[valid-type]
    """What the cluster gives the pods of trainings."""


class Chart(Values):
    """All values of the chart."""

    images: ImageValues
    user: Count
    """User and group id of all pods: runs and trainings read each other's files on the durable tier."""
    postgresql: PostgreSQL
    objectStore: ObjectStoreValues  # noqa: N815
    volumes: Volumes
    checkpoints: CheckpointValues
    training: TrainingValues
    priorityClass: Name | Literal[""]  # noqa: N815
    """The PriorityClass of the control plane's pods."""
    unreachableSeconds: Seconds  # noqa: N815
    """Seconds after which the pods of a node that does not answer are given up, and made again elsewhere."""
    webserver: Webserver
    identity: Identity
    proxy: Proxy
    dex: Dex
    code: Component
    daemon: Component
    mlflow: MLflow
    dask: Dask
    builder: Replicated
    metrics: Metrics
    logs: Logs
    runs: Runs
    platform: PlatformValues
    network: Network


def schema() -> str:
    """The text of values.schema.json."""
    return json.dumps(Chart.model_json_schema(), indent=2) + "\n"
