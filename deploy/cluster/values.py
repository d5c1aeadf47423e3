"""The chart's values as types: `deploy/chart/values.schema.json` is made from them, so that Helm refuses a typo.

What the platform's settings and the chart both know (the image, the namespace, the claims) is said once, here, and the
chart writes it into the settings.
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
from recipes.parts import Count, Part
from resources.kubernetes.cluster import Cluster
from resources.platform import ComputeSettings, NodeTaskSettings, TierSettings

SCHEMA = Path(__file__).parent.parent / "chart" / "values.schema.json"
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""Of an object."""
Image = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][^\s@]*(@sha256:[0-9a-f]{64}|:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})$"),
    Field(json_schema_extra={"not": {"pattern": ":latest$"}}),
]
MountPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._/-]+$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]
Bucket = Annotated[str, Field(pattern=r"^(s3://[a-z0-9][a-z0-9.-]+(/.*)?)?$")]
OF_THE_CHART = {
    "tiers": ("durable", "nvme"),
    "cluster": ("image", "namespace", "pull_policy", "service_account", "volumes", "user", "recipe_patch"),
}
"""Fields of the platform's settings that follow from other values."""


class Values(Part):
    """A section of the chart's values."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Images(Values):
    platform: Image
    """Webserver, daemon, code location, runs and MLflow; by digest, or by a tag that says which."""
    trainer: Image
    """The pods of trainings; by digest, or by a tag that says which."""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"]  # noqa: N815
    """Of all pods."""
    pullSecrets: list[Name]  # noqa: N815
    """Existing Secrets of the registry, in both namespaces."""


class Peer(Values):
    """Where a service outside the chart is, for the NetworkPolicies. No peers: any address, on these ports."""

    ports: list[Port]
    """Its TCP ports."""
    peers: list[dict[str, Any]]
    """NetworkPolicyPeers: `ipBlock`, or `namespaceSelector` with `podSelector`."""


class PostgreSQL(Peer):
    secret: Name
    """An existing Secret with the key `pg_service.conf`: the services `dagster` and `mlflow`, passwords included."""


class ObjectStore(Peer):
    secret: Name | Literal[""]
    """An existing Secret, in both namespaces, with the key `credentials`, a credentials file as AWS has it."""
    endpoint: str
    """The URL of an object store that is not AWS's."""
    region: str
    """The region, where the store has such."""
    artefacts: Bucket
    """Where MLflow keeps artefacts: s3://bucket/prefix. Empty: it serves none."""


class Claim(Values):
    claim: Name | Literal[""]
    """The PersistentVolumeClaim."""
    path: MountPath
    """Where it is mounted."""


class Volumes(Values):
    durable: Claim
    """The durable tier: a claim of this name in both namespaces."""
    nvme: Claim
    """Each node's own disk: a claim in the namespace of trainings."""
    corpora: Claim
    """What datasets are read from, read-only: a claim in the control plane's namespace; empty for none."""


class Resources(Values):
    cpu: Quantity
    """Requested; there is no limit, which would only slow down."""
    memory: Quantity
    """Requested, and the limit."""
    storage: Quantity
    """Of the container's own file system and its /tmp: requested, and the limit."""


class Component(Values):
    """One of the chart's Deployments."""

    resources: Resources
    """What its container is given."""
    nodeSelector: dict[str, str]  # noqa: N815
    """Labels of the nodes it may run on."""
    tolerations: list[dict[str, Any]]
    """Taints it tolerates."""


class Replicated(Component):
    replicas: Count
    """How many there are."""


class MLflow(Replicated):
    enabled: bool
    """False where there is a server already: say where in `platform.tracking`."""
    hosts: list[str]
    """Names under which browsers reach it from outside, beside its Service's."""


class Webserver(Replicated):
    readOnly: bool  # noqa: N815
    """Whether the UI may only look."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """NetworkPolicyPeers that may reach the UI and MLflow's: the ingress controller. None: only port-forwarding."""


class Runs(Component):
    """Dagster's own runs: short jobs that make datasets, submit trainings and watch them."""

    maxConcurrent: Count  # noqa: N815
    """How many run at once; the others wait in the queue."""
    startTimeoutSeconds: Seconds  # noqa: N815
    """After which a run that has not begun is given up: longer than pulling the image takes on a fresh node."""
    keepSeconds: Seconds  # noqa: N815
    """How long the pods of ended runs stay, to be looked at."""


class Training(Values):
    namespace: Name
    """Where the pods of trainings run; it is made by the objects of deploy/platform."""


class Network(Values):
    enabled: bool
    """Whether NetworkPolicies are made. They bind only where the network plugin enforces them."""
    apiServer: Peer  # noqa: N815
    """The API server as pods see it: the endpoints of the Service `kubernetes`, after address translation."""
    dns: Peer
    """The cluster's DNS."""


def _without(section: type, left_out: tuple[str, ...], name: str) -> Any:
    """The fields of a model or a dataclass as optional values with descriptions, except those that the chart knows."""
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


class Tracking(Values):
    uri: str
    """Of the MLflow server, where the chart's own is not used; empty otherwise."""


Tiers = _without(TierSettings, OF_THE_CHART["tiers"], "Tiers")
NodeTasks = _without(NodeTaskSettings, (), "NodeTasks")
Nodes = _without(Cluster, OF_THE_CHART["cluster"], "Nodes")


class PlatformValues(Values):
    """The platform's settings, as far as they do not follow from the rest."""

    launcher: ComputeSettings.__annotations__["launcher"]  # type: ignore[valid-type,name-defined] # noqa: F821
    """The kind of object that runs a training's pods; `job` needs nothing installed."""
    node_tasks: NodeTasks  # type: ignore[valid-type]
    """The pods that stage, clean and look at one node."""
    revision: str
    """Revision of the code in the images, recorded in every checkpoint."""
    tiers: Tiers  # type: ignore[valid-type]
    """The tiers of storage besides the mounted ones."""
    tracking: Tracking
    """Where MLflow is, if elsewhere."""
    cluster: Nodes  # type: ignore[valid-type]
    """What the cluster gives the pods of trainings."""


class Chart(Values):
    """All values of the chart."""

    images: Images
    user: Count
    """User and group id of all pods: what runs write on the durable tier, trainings read, and the other way round."""
    postgresql: PostgreSQL
    objectStore: ObjectStore  # noqa: N815
    volumes: Volumes
    training: Training
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
