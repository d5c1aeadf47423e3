"""The fabric: what NCCL and gloo are told about the network between the ranks, from one typed section.

A section becomes environment variables, which is how NCCL is told; they must be set before ranks meet.
"""

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any

from trainer.operation import Hardware

ETHERNET: dict[str, Any] = {"infiniband": False, "socket_interface": "eth0", "debug": "WARN", "affinity": "numa"}
INFINIBAND: dict[str, Any] = {
    "infiniband": True,
    "adapters": "mlx5",
    "gid_index": 3,
    "gpudirect_level": "PXB",
    "gpudirect_read": True,
    "cross_nic": 1,
    "buffer_bytes": 16 * 2**20,
    "p2p_level": "NVL",
    "socket_interface": "ib0",
    "debug": "WARN",
    "affinity": "numa",
}
PROFILES: dict[str, dict[str, Any]] = {
    "none": {},
    "ethernet": ETHERNET,
    "h200-infiniband": INFINIBAND,
    # An adapter for each GPU: a ring had better stay on its rail.
    "h100-8nic": {**INFINIBAND, "cross_nic": 2},
}
"""The reasons stand beside the fields, in `trainer.operation.Hardware`."""
VARIABLES = {
    "adapters": ("NCCL_IB_HCA",),
    "gid_index": ("NCCL_IB_GID_INDEX",),
    "gpudirect_level": ("NCCL_NET_GDR_LEVEL",),
    "gpudirect_read": ("NCCL_NET_GDR_READ",),
    "cross_nic": ("NCCL_CROSS_NIC",),
    "buffer_bytes": ("NCCL_BUFFSIZE",),
    "p2p_level": ("NCCL_P2P_LEVEL",),
    "socket_interface": ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
    "debug": ("NCCL_DEBUG",),
}
"""Fields whose value is the variables' too."""
ALGORITHMS = {
    "ring": "allreduce:ring",
    "tree": "allreduce:tree,ring",
    "hierarchical": "allreduce:nvlstree,ring",
    "sharp": "allreduce:collnetdirect,collnetchain,ring",
}
"""NCCL_ALGO; since NCCL 2.24 one that does not apply fails unless another is listed."""


def settled(hardware: Hardware) -> Hardware:
    """The section with its profile's values where it has none of its own."""
    profile = PROFILES[hardware.profile]
    return dataclasses.replace(hardware, **{name: profile[name] for name in profile if getattr(hardware, name) is None})


def variables(hardware: Hardware) -> dict[str, str]:
    """The environment variables that a section stands for."""
    return {variable: text for variable, (text, _) in _variables(hardware).items()}


def apply(hardware: Hardware, environment: MutableMapping[str, str]) -> None:
    """Set what is not set yet: who starts a rank knows better than the recipe."""
    for variable, text in variables(hardware).items():
        environment.setdefault(variable, text)


def holding(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    """What holds after `apply`, by variable: "mlx5 (profile h200-infiniband)"; others of NCCL's that are set too."""
    meant = _variables(hardware)
    given = {name: text for name, text in environment.items() if name.startswith("NCCL_") or name in meant}
    return {
        name: f"{text} ({meant[name][1] if name in meant and meant[name][0] == text else 'environment'})"
        for name, text in sorted(given.items())
    }


def _variables(hardware: Hardware) -> dict[str, tuple[str, str]]:
    """By variable its value, and whether that is the recipe's own or the profile's."""
    values = settled(hardware)
    found: dict[str, tuple[str, str]] = {}
    for name in ("infiniband", "algorithm", *VARIABLES):
        source = f"profile {hardware.profile}" if getattr(hardware, name) is None else "recipe"
        value = getattr(values, name)
        texts = {} if value is None else _texts(name, value)
        found |= {variable: (text, source) for variable, text in texts.items()}
    return found


def _texts(name: str, value: Any) -> dict[str, str]:
    """The variables of one field."""
    if name == "infiniband":
        return {"NCCL_IB_DISABLE": str(int(not value))}
    if name == "algorithm":
        plugin = {"NCCL_COLLNET_ENABLE": "1"} if value == "sharp" else {}
        return {"NCCL_ALGO": ALGORITHMS[value], **plugin}
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return dict.fromkeys(VARIABLES[name], text)
