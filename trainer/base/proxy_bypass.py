"""Proxy bypass: requests to Slipway's own addresses go there directly, even if the environment names a proxy.

A company's proxy does not know this machine's ports or a cluster's Services, and others can read its requests: a token,
a prompt. Our own clients open such addresses with `opener`. Libraries (MLflow's client, botocore,
GraphQL's and Kubernetes' clients, gRPC) read `no_proxy`: `bypass` adds these addresses to it.
"""

import ipaddress
import os
import urllib.request
from collections.abc import MutableMapping
from urllib.parse import urlsplit

NAMES = ("localhost", "127.0.0.1", "127.0.0.0/8", "::1", "[::1]", ".svc", ".cluster.local")
"""The addresses in `no_proxy` that are always our own: libraries understand different forms of them."""
URLS = (
    "MLFLOW_TRACKING_URI",
    "MLFLOW_REGISTRY_URI",
    "MLFLOW_S3_ENDPOINT_URL",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)
"""Variables with addresses that libraries ask."""
API_SERVER = "KUBERNETES_SERVICE_HOST"
"""The address of a cluster's API server, in each of its pods."""


def is_own(host: str) -> bool:
    """Whether a host is this machine, an address of a private network, or by its name a Service of a cluster."""
    name = host.strip("[]").rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return "." not in name or name.endswith((".localhost", ".svc", ".cluster.local"))
    return address.is_private or address.is_loopback or address.is_link_local


def opener(url: str, *handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """The opener for this address, without a proxy if it is our own. Raises ValueError if it is no address."""
    return direct(*handlers) if is_own(urlsplit(url).hostname or "") else urllib.request.build_opener(*handlers)


def direct(*handlers: urllib.request.BaseHandler) -> urllib.request.OpenerDirector:
    """An opener without a proxy for every address: for our own ones under any name, such as another node's."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)


def bypass(environ: MutableMapping[str, str] = os.environ, *urls: str) -> None:
    """Make libraries of this process and its children send requests for our own addresses directly.

    `urls`: addresses that one of them will request. Without a proxy in the environment, it changes nothing.
    """
    if not any(value and name.lower().endswith("_proxy") for name, value in environ.items() if not _excludes(name)):
        return
    entries = [entry.strip() for entry in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").split(",")]
    if "*" in entries:
        return
    hosts = [urlsplit(url).hostname or "" for url in (*(environ.get(name, "") for name in URLS), *urls)]
    own = [*NAMES, *(host for host in (*hosts, environ.get(API_SERVER, "")) if host and is_own(host))]
    both = ",".join(dict.fromkeys([*filter(None, entries), *own]))
    environ["no_proxy"] = environ["NO_PROXY"] = both


def _excludes(name: str) -> bool:
    return name.lower() in ("no_proxy", "no_grpc_proxy")
