"""Host names: under which names a server answers; a request for another one is refused.

A page of another site can have its own name lead to this machine (DNS rebinding). For the browser its requests are then
of the same site, whoever's server answers them: only the name, which the browser sends as `Host`, tells them apart.
An attacker chooses names and no addresses: the address at which a connection came in is always one of the server's.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Mapping, Sequence

VARIABLE = "SLIPWAY_HOSTS"
"""The further names of this place, separated by commas: those of an Ingress, a Service, a machine in a network."""
LOCAL = "localhost"
MISDIRECTED = 421
"""The status of a refusal (RFC 9110, 15.5.20)."""
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|[0-9a-f:.]+")
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]{1,5})?")
SHOWN_CHARACTERS = 100
"""So many characters of a name are repeated."""


def named(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The names that the environment adds. Raises ValueError for what is none."""
    names = [name.strip().strip("[]").rstrip(".").lower() for name in environ.get(VARIABLE, "").split(",")]
    for name in filter(None, names):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{VARIABLE}: found {name!r}, expected names of hosts without a port, separated by commas")
    return frozenset(filter(None, names))


def refusal(hosts: Sequence[str], bound: str, names: Collection[str]) -> str:
    """Why a request with these `Host` headers is not answered; empty where it is.

    `bound` is the address of this machine at which its connection came in, empty where there is none.
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
