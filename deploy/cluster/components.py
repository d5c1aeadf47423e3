"""Parts of the chart's values: the field types, and the Deployments that can be enabled separately."""

from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.deploy.cluster.sections import Values
from slipway.recipes.kubernetes import Quantity
from slipway.recipes.parts import Count

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


class PeerValues(Values):
    """The place of a service outside the chart, for the NetworkPolicies."""

    ports: list[Port]
    """The TCP ports of the service."""
    peers: Annotated[list[dict[str, Any]], Field(min_length=1)]
    """NetworkPolicyPeers: `ipBlock`, or `namespaceSelector` with `podSelector`. To allow any address, write the ipBlock
    0.0.0.0/0."""


class Resources(Values):
    cpu: Quantity
    """The CPU request. There is no CPU limit, since it would only slow the container down."""
    memory: Quantity
    """The memory limit, and the request unless `memoryRequest` sets it."""
    memoryRequest: Quantity | Literal[""] = ""  # noqa: N815
    """The memory request, if it is lower than the limit; empty for the limit."""
    storage: Quantity
    """The request and the limit for the container's own file system and its /tmp."""


class Component(Values):
    """One of the chart's Deployments."""

    resources: Resources
    """The resources of its container."""
    nodeSelector: dict[str, str]  # noqa: N815
    """The labels of the nodes on which it may run."""
    tolerations: list[dict[str, Any]]
    """The tolerations of its pods."""


class Replicated(Component):
    replicas: Count
    """The number of its pods."""


class Dask(Component):
    enabled: bool
    """Whether to install a Dask scheduler and Dask workers (`builder`), which build datasets."""
    secret: Name | Literal[""]
    """An existing Secret with ca.crt, tls.crt and tls.key, as cert-manager creates it. Required with `enabled`.
    Everybody who has these keys may run any code in the workers."""


class Monitors(Values):
    """The objects by which the Prometheus operator finds the targets to scrape."""

    enabled: bool
    """Whether to create a ServiceMonitor and a PodMonitor. The operator's CRDs must be installed."""
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*(s|m)$")]
    """The time between two scrapes."""
    labels: dict[str, str]
    """The labels of both objects, by which your Prometheus selects them."""


class Metrics(Component):
    enabled: bool
    """Whether to run a metrics exporter for the platform, and one in each pod of a training."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """The NetworkPolicyPeers of your Prometheus. Only they may scrape. Required with `enabled`."""
    monitors: Monitors
    """The objects for the Prometheus operator."""


class Logs(Component, PeerValues):
    image: Image | Literal[""]
    """The image of Grafana Alloy, which sends the ranks' output to Loki; empty to send nothing."""
    loki: Annotated[str, Field(pattern=r"^(https?://[^@\s]+)?$")]
    """Loki's push address, such as https://loki.example/loki/api/v1/push; required with an image."""
    secret: Name | Literal[""]
    """An existing Secret with the key `token`, for the bearer token of the requests to Loki; empty for no token."""
