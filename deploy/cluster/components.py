"""Parts of the chart's values: the kinds of field, and the Deployments that are switched on by themselves."""

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
    """NetworkPolicyPeers: `ipBlock`, or `namespaceSelector` with `podSelector`. Never empty, which would mean any
    address; who wants any writes 0.0.0.0/0."""


class Resources(Values):
    cpu: Quantity
    """The request; there is no limit, which would only slow the container down."""
    memory: Quantity
    """The limit, and the request but for `memoryRequest`."""
    memoryRequest: Quantity | Literal[""] = ""  # noqa: N815
    """What is reserved, where that is less than the limit; empty for the limit."""
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


class Dask(Component):
    enabled: bool
    """Whether there are a scheduler of Dask and workers, `builder`, that build datasets."""
    secret: Name | Literal[""]
    """An existing Secret with ca.crt, tls.crt and tls.key, as cert-manager makes it; whoever has it may run any code in
    the workers. Required where `enabled`."""


class Monitors(Values):
    """Objects by which the Prometheus operator finds what there is to scrape."""

    enabled: bool
    """Whether there are a ServiceMonitor and a PodMonitor; the operator's CRDs must be installed."""
    interval: Annotated[str, Field(pattern=r"^[1-9][0-9]*(s|m)$")]
    """From one scrape to the next."""
    labels: dict[str, str]
    """Labels of both, by which your Prometheus selects them."""


class Metrics(Component):
    enabled: bool
    """Whether there is an exporter of the platform, and one in each pod of a training."""
    from_: list[dict[str, Any]] = Field(alias="from")
    """NetworkPolicyPeers of your Prometheus, which alone may scrape; required where `enabled`."""
    monitors: Monitors
    """What the Prometheus operator reads."""


class Logs(Component, PeerValues):
    image: Image | Literal[""]
    """Grafana Alloy's image; empty: nothing sends the ranks' output to Loki."""
    loki: Annotated[str, Field(pattern=r"^(https?://[^@\s]+)?$")]
    """The address of Loki that takes lines: https://loki.example/loki/api/v1/push; required with an image."""
    secret: Name | Literal[""]
    """An existing Secret with the key `token`, which Loki wants of each request; empty for none."""
