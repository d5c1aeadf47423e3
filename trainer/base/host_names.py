"""Host names: the names under which a server answers; it rejects requests for other names.

Another site's page can make its own name lead to this machine (DNS rebinding). For the browser, its requests are then
of the same site, although our server answers them. Only the name, which the browser sends as `Host`, distinguishes
them. An attacker chooses names but no addresses, so the address of the connection is always accepted.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping, Sequence

VARIABLE = "SLIPWAY_HOSTS"
"""Further names of the server, separated by commas: of an Ingress, a Service, a machine in a network."""
LOCAL = "localhost"
MISDIRECTED = 421
"""The status of a refusal (RFC 9110, 15.5.20)."""
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:.]+")
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{1,5})?")
SHOWN_CHARACTERS = 100
"""So many characters of a name are repeated."""


def named(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The names in the environment. Raises ValueError for a bad name."""
    names = [name.strip().strip("[]").rstrip(".").lower() for name in environ.get(VARIABLE, "").split(",")]
    for name in filter(None, names):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{VARIABLE}: found {name!r}, expected names of hosts without a port, separated by commas")
    return frozenset(filter(None, names))


def refusal(hosts: Sequence[str], bound: str, names: Collection[str]) -> str:
    """Why a request with these `Host` headers is rejected; empty if it is accepted.

    `bound`: the local address of its connection; empty if there is none.
    """
    [host] = hosts if len(hosts) == 1 else [""]
    match = _HOST.fullmatch(host)
    name = (match["address"] or match["name"]).rstrip(".").lower() if match else ""
    if name and (name == LOCAL or name in names or _is_here(name, bound)):
        return ""
    actual = repr(host[:SHOWN_CHARACTERS]) if hosts else "none"
    return (
        f"Host: found {actual}, expected localhost, this server's address, or a name in {VARIABLE} (a list with commas)"
    )


def _is_here(name: str, bound: str) -> bool:
    """Whether a name is a loopback address, or the one at which the connection came in."""
    address = _address(name)
    return address is not None and (address.is_loopback or address == _address(bound))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
