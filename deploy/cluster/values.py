"""The chart's values as types: `deploy/chart/values.schema.json` is made from them, so that Helm refuses a typo.

Fields that the platform's settings and the chart share (the image, the namespace, the claims) are values of the chart
only, and the chart writes them into the settings.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from recipes.kubernetes import Quantity
from recipes.parts import Count, RecipeSection
from resources.kubernetes.cluster import Cluster
from resources.platform import NodeTaskSettings, ProfileName, TierSettings, WorkloadName

CHART = Path(__file__).parent.parent / "chart"
SCHEMA = CHART / "values.schema.json"
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""The name of an object."""
Image = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})$"),
    Field(json_schema_extra={"not": {"pattern": ":latest$"}}),
]
MountPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]
Bucket = Annotated[str, Field(pattern=r"^(s3://[a-z0-9][a-z0-9.-]+(/.*)?)?$")]
PublicUri = Annotated[str, Field(pattern=r"^[^@]*$")]
"""An address that ends in a ConfigMap: it has no user and no password."""
OF_THE_CHART = {
    "tiers": ("durable", "nvme"),
    "cluster": ("image", "namespace", "pull_policy", "service_account", "volumes", "user", "recipe_patch"),
}
"""Fields of the platform's settings that follow from other values."""


class Values(RecipeSection):
    """A section of the chart's values."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class ImageValues(Values):
    platform: Image
    """The image of webserver, daemon, code location, runs and MLflow; with a digest or a tag."""
    trainer: Image
    """The image of trainings' pods; with a digest or a tag."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]  # noqa: N815
    """The pull policy of all pods."""
    pullSecrets: list[Name]  # noqa: N815
    """Existing Secrets of the image registry, in both namespaces."""


class PeerValues(Values):
    """The place of a service outside the chart, for the NetworkPolicies. Without peers: any address, on these ports."""

    ports: list[Port]
    """The TCP ports of the service."""
    peers: list[dict[str, Any]]
    """NetworkPolicyPeers: `ipBlock`, or `namespaceSelector` with `podSelector`."""


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


class Resources(Values):
    cpu: Quantity
    """The request; there is no limit, which would only slow the container down."""
    memory: Quantity
    """The request and the limit."""
    storage: Quantity
    """The request and the limit for the container's own file system and its /tmp."""


class Component(Values):
    """One of the chart's Deployments."""

    resources: Resources
    """The resources of its container."""
    nodeSelector: dict[str, str]  # noqa: N815
    """Labels of the nodes that it may run on."""
    tolerations: list[dict[str, Any]]
    """Tolerations of its pods."""


class Replicated(Component):
    replicas: Count
    """The number of its pods."""


class MLflow(Replicated):
    enabled: bool
    """False where a server exists already; write its address into `platform.tracking`."""
    hosts: list[str]
    """Host names under which browsers reach it from outside, besides those of its Service."""


class Webserver(Replicated):
    readOnly: bool  # noqa: N815
    """Whether the UI can only show, and start or stop nothing."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """NetworkPolicyPeers, such as the ingress controller, that may reach both UIs. None: only port-forwarding."""


class Runs(Component):
    """Dagster's own runs: short jobs that make datasets, submit trainings and watch them."""

    maxConcurrent: Count  # noqa: N815
    """How many runs run at once; the others wait in the queue."""
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


def _without(section: type, left_out: tuple[str, ...], name: str) -> Any:
    """The fields of a model or a dataclass as optional values with descriptions, without those in `left_out`."""
    if dataclasses.is_dataclass(section):
        hints, said = typing.get_type_hints(section), _attribute_docstrings(section)
        fields = {each.name: (hints[each.name], said.get(each.name)) for each in dataclasses.fields(section)}
    else:
        assert issubclass(section, BaseModel)
        said = {name: each.description for name, each in section.model_fields.items() if each.description}
        said = said or _attribute_docstrings(section)
        fields = {name: (each.annotation, said.get(name)) for name, each in section.model_fields.items()}
    kept = {field: value for field, value in fields.items() if field not in left_out}
    optional: dict[str, Any] = {
        field: (hint, Field(default=None, description=text)) for field, (hint, text) in kept.items()
    }
    return create_model(name, __base__=Values, **optional)


def _attribute_docstrings(owner: type) -> dict[str, str]:
    """The string below each field of a class."""
    [found] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(found, ast.ClassDef)
    return {
        field.target.id: ast.literal_eval(below.value)
        for field, below in itertools.pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)
    }


class TrackingValues(Values):
    uri: PublicUri
    """The address of the MLflow server, without user and password; empty for the chart's own, or with a `secret`."""
    secret: Name | Literal[""]
    """An existing Secret with the key `uri`, for an address with a user and password: https://user:password@host."""


Tiers = _without(TierSettings, OF_THE_CHART["tiers"], "Tiers")
NodeTasks = _without(NodeTaskSettings, (), "NodeTasks")
Nodes = _without(Cluster, OF_THE_CHART["cluster"], "Nodes")


class PlatformValues(Values):
    """The platform's settings that do not follow from other values."""

    launcher: WorkloadName
    """The kind of object that runs a training's pods; `job` needs nothing installed."""
    hardware: ProfileName
    """The profile of the cluster's hardware, which trainings must fit; empty for none."""
    node_tasks: NodeTasks  # type: ignore[valid-type]
    """The pods that stage, clean and measure one node."""
    revision: str
    """Revision of the code in the images, recorded in every checkpoint."""
    tiers: Tiers  # type: ignore[valid-type]
    """The tiers of storage besides the mounted volumes."""
    tracking: TrackingValues
    """The address of MLflow, if the chart's own is not used."""
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
    webserver: Webserver
    code: Component
    daemon: Component
    mlflow: MLflow
    runs: Runs
    platform: PlatformValues
    network: Network


def schema() -> str:
    """The text of values.schema.json."""
    return json.dumps(Chart.model_json_schema(), indent=2) + "\n"
