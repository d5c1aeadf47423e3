"""The types of the chart's values. `deploy/chart/values.schema.json` is made from them, so that Helm refuses a typo.

Fields that the platform's settings and the chart share (the image, the namespace, the claims) are set once, as values
of the chart, and the chart writes them into the settings.
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
"""An address without user and password, since it is written into a ConfigMap."""
OF_THE_CHART = {
    "tiers": ("durable", "nvme"),
    "cluster": (
        *("image", "namespace", "pull_policy", "service_account", "volumes", "user", "recipe_patch"),
        "network_policy",
    ),
}
"""The fields of the platform's settings that the chart sets from other values."""


class ImageValues(Values):
    platform: Image
    """The image of the webserver, the daemon, the code location, the runs and MLflow; with a digest or a tag."""
    trainer: Image
    """The image of the pods of trainings; with a digest or a tag."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]  # noqa: N815
    """The pull policy of all pods."""
    pullSecrets: list[Name]  # noqa: N815
    """Existing Secrets for the image registry, in both namespaces."""


class PostgreSQL(PeerValues):
    secret: Name
    """An existing Secret with the key `pg_service.conf`: the services `dagster` and `mlflow` with their passwords."""


class ObjectStoreValues(PeerValues):
    secret: Name | Literal[""]
    """An existing Secret, in both namespaces, with the key `credentials`: a credentials file in AWS's format."""
    endpoint: str
    """The URL of the object store; empty for AWS's."""
    region: str
    """The region, if the store has regions."""
    artifacts: Bucket
    """The place of MLflow's artefacts: s3://bucket/prefix. If it is empty, MLflow serves no artefacts."""


class CheckpointValues(Values):
    secret: Name | Literal[""]
    """An existing Secret, in both namespaces, with the encryption keys of checkpoints; empty for none. Each of its keys
    becomes a file in /secrets/checkpoints, in the pods that read or write checkpoints (trainings, evaluations, drills).
    """


class VolumeClaim(Values):
    claim: Name | Literal[""]
    """The name of the PersistentVolumeClaim."""
    path: MountPath
    """The path at which it is mounted."""


class Volumes(Values):
    durable: VolumeClaim
    """The durable tier: a claim of this name in both namespaces."""
    nvme: VolumeClaim
    """The disk of each node: a claim in the namespace of trainings."""
    corpora: VolumeClaim
    """The sources of datasets, read-only: a claim in the control plane's namespace; empty for none."""


class MLflow(Replicated):
    enabled: bool
    """Whether to run an MLflow server. If you already have one, write its address into `platform.tracking`."""
    hosts: list[str]
    """Host names under which browsers reach MLflow from outside, besides those of its Service."""


class Webserver(Replicated):
    readOnly: bool  # noqa: N815
    """Whether the UI is read-only, so that nobody can start or stop anything with it."""
    hosts: list[str]
    """Host names under which browsers reach the UI, besides `identity.hosts.webserver` and those of its Service."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """The NetworkPolicyPeers that may reach both UIs, such as the ingress controller. Without any, only port-forwarding
    reaches them."""


class PageHosts(Values):
    webserver: Name | Literal[""]
    """The host of the UI; empty if no proxy is in front of it."""
    mlflow: Name | Literal[""]
    """The host of MLflow."""
    serving: Name | Literal[""]
    """The host of served models."""


class IdentityIngress(Values):
    className: Name | Literal[""]  # noqa: N815
    """The class of the Ingresses. If it is empty, no Ingress is created."""
    tlsSecret: Name | Literal[""]  # noqa: N815
    """An existing Secret with the certificate of all hosts; required with a class."""


class Identity(PeerValues):
    """Who may open the pages, and who may do what."""

    secret: Name | Literal[""]
    """An existing Secret with `token`, which requests to the webserver must carry, and `oauth2-proxy.cfg`; empty for no
    token."""
    issuer: Annotated[str, Field(pattern=r"^(https://[^@\s]+)?$")]
    """The address of the OpenID Connect issuer. If it is empty, the chart installs no proxy."""
    clientId: str  # noqa: N815
    """The client id of the proxy at the issuer."""
    hosts: PageHosts
    """The hosts of the pages behind the proxy."""
    userHeader: str  # noqa: N815
    """The header in which your own proxy names the person who sends a request; empty without such a proxy."""
    operators: list[str]
    """The people who may start, stop and change things, besides promoters, by the proxy's names; empty: everybody."""
    promoters: list[str]
    """The people who may decide which version is champion; empty for everybody in `operators`."""
    ingress: IdentityIngress
    """The Ingresses before the proxy."""


class Proxy(Replicated):
    image: Image | Literal[""]
    """oauth2-proxy's image; required with an issuer."""


class Dex(Component):
    image: Image | Literal[""]
    """dex's image; empty if the issuer is not this dex."""
    secret: Name | Literal[""]
    """An existing Secret with the key `config.yaml`: dex's configuration, with `web: {http: 0.0.0.0:5556}`."""
    host: Name | Literal[""]
    """The host of the issuer's address."""


class RunCounts(Values):
    """The number of runs for each kind of work with a limit (`slipway.resources.run_kinds`)."""

    training: Count
    """Runs that wait for a training, one for each training in progress. The trainings do not wait for these runs."""
    sweep: Count
    """Runs that wait for the trials of a sweep, one for each sweep in progress."""
    data: Count
    """Runs that build datasets and suites."""
    evaluation: Count
    """Runs that evaluate checkpoints, or replay steps."""
    model: Count
    """Runs that register, judge, export and serve models."""
    staging: Count
    """Runs that stage shards, one for each node and dataset."""
    upkeep: Count
    """Periodic runs: retention, backups, drills, reports."""


class Runs(Component):
    """Dagster's runs: jobs that build datasets, submit trainings and watch them."""

    maxConcurrent: RunCounts  # noqa: N815
    """The maximum number of runs of each kind at the same time; further runs of that kind wait. Verbs and recovery have
    no limit."""
    startTimeoutSeconds: Seconds  # noqa: N815
    """The seconds after which a run that has not begun fails; longer than a new node needs to pull the image."""
    keepSeconds: Seconds  # noqa: N815
    """The seconds for which the pods of ended runs remain, for inspection."""


class TrainingValues(Values):
    namespace: Name
    """The namespace of the pods of trainings. The objects of deploy/platform create it."""


class Network(Values):
    enabled: bool
    """Whether to create NetworkPolicies. They have an effect only if the network plugin enforces them."""
    apiServer: PeerValues  # noqa: N815
    """The API server as pods reach it: the endpoints of the Service `kubernetes`, after address translation."""
    dns: PeerValues
    """The cluster's DNS."""
    notices: PeerValues
    """The receivers of notifications and OpenLineage events, if `platform` has these sections."""


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
    """The pods that stage shards on one node, clean it and measure it."""
    steps: Steps  # type: ignore[valid-type]
    """The pods of heavy steps: building a dataset, evaluating, restoring a checkpoint."""
    serving: Serving  # type: ignore[valid-type]
    """How models are served; `image` is the image of vLLM. If it is empty, models are not served."""
    revision: str
    """The revision of the code, recorded in every checkpoint; empty for the revision that the images state."""
    tiers: Tiers  # type: ignore[valid-type]
    """The tiers of storage besides the mounted volumes."""
    tracking: TrackingValues
    """The address of MLflow, if the chart's own is not used."""
    pages: PageValues  # type: ignore[valid-type]
    """The addresses at which people open Dagster and MLflow in a browser, for the links between them."""
    quarantine: Quarantine  # type: ignore[valid-type]
    """When nodes are diagnosed and taken out of service. With `apply`, the code location may cordon nodes."""
    prices: PriceValues  # type: ignore[valid-type]
    """The price of a rank-hour. If it is empty, costs are stated only in rank-hours."""
    teams: dict[TeamName, TeamValues]  # type: ignore[valid-type]
    """The quotas and prices of teams, by name. A team that is not listed has no quota."""
    notifications: Notifications  # type: ignore[valid-type]
    """Who is notified of incidents and of work that waits for a person; empty for nobody."""
    openlineage: OpenLineage  # type: ignore[valid-type]
    """The receiver of OpenLineage events; empty to send none."""
    secret: Name | Literal[""]
    """An existing Secret. Each of its keys becomes a file in /secrets/platform, for the fields that end in `_file`."""
    cluster: Nodes  # type: ignore[valid-type]
    """The cluster's settings for the pods of trainings."""


class Chart(Values):
    """All values of the chart."""

    images: ImageValues
    user: Count
    """The user and group id of all pods, since runs and trainings read each other's files on the durable tier."""
    postgresql: PostgreSQL
    objectStore: ObjectStoreValues  # noqa: N815
    volumes: Volumes
    checkpoints: CheckpointValues
    training: TrainingValues
    priorityClass: Name | Literal[""]  # noqa: N815
    """The PriorityClass of the control plane's pods."""
    unreachableSeconds: Seconds  # noqa: N815
    """The seconds after which the pods of a node that does not answer are replaced on another node."""
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
