"""The fabric: settings of NCCL and gloo for the network between the ranks, from the section `hardware`.

NCCL reads its settings from environment variables, which must be set before the ranks connect. The profiles are in
`slipway.trainer.config.profiles`; no deployment sets such a variable beside them.
"""

import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any

from slipway.trainer.config.operation import Hardware
from slipway.trainer.config.profiles import NETWORKS

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
"""Fields whose value becomes the value of these variables."""
ALGORITHMS = {
    "ring": "allreduce:ring",
    "tree": "allreduce:tree,ring",
    "hierarchical": "allreduce:nvlstree,ring",
    "sharp": "allreduce:collnetdirect,collnetchain,ring",
}
"""Values of NCCL_ALGO. Since NCCL 2.24 an algorithm that does not apply is an error unless another is listed."""


def with_profile(hardware: Hardware) -> Hardware:
    """The section, with its profile's values in the fields that it leaves empty."""
    profile = NETWORKS[hardware.profile]
    return dataclasses.replace(hardware, **{name: profile[name] for name in profile if getattr(hardware, name) is None})


def variables(hardware: Hardware) -> dict[str, str]:
    """The environment variables for a section."""
    return {variable: text for variable, (text, _) in _variables(hardware).items()}


def apply(hardware: Hardware, environment: MutableMapping[str, str]) -> None:
    """Set the variables that are not set yet: the environment of a rank overrides the recipe."""
    for variable, text in variables(hardware).items():
        environment.setdefault(variable, text)


def in_force(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    """The value and source of each variable after `apply`, and of other NCCL variables: "mlx5 (profile ethernet)"."""
    expected = _variables(hardware)
    own_variables = {name: text for name, text in environment.items() if name.startswith("NCCL_") or name in expected}
    return {
        name: f"{text} ({expected[name][1] if name in expected and expected[name][0] == text else 'environment'})"
        for name, text in sorted(own_variables.items())
    }


def _variables(hardware: Hardware) -> dict[str, tuple[str, str]]:
    """The value of each variable, and whether it is from the recipe or the profile."""
    values = with_profile(hardware)
    settings: dict[str, tuple[str, str]] = {}
    for name in ("infiniband", "algorithm", *VARIABLES):
        source = f"profile {hardware.profile}" if getattr(hardware, name) is None else "recipe"
        value = getattr(values, name)
        texts = {} if value is None else _texts(name, value)
        settings |= {variable: (text, source) for variable, text in texts.items()}
    if values.algorithm == "sharp":
        # NCCL uses the in-switch reduction of the chosen network plugin; its own network has none.
        settings.pop("NCCL_NET", None)
    return settings


def _texts(name: str, value: Any) -> dict[str, str]:
    """The variables of one field."""
    if name == "infiniband":
        return {"NCCL_IB_DISABLE": "0", "NCCL_NET": "IB"} if value else {"NCCL_IB_DISABLE": "1"}
    if name == "algorithm":
        plugin = {"NCCL_COLLNET_ENABLE": "1"} if value == "sharp" else {}
        return {"NCCL_ALGO": ALGORITHMS[value], **plugin}
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return dict.fromkeys(VARIABLES[name], text)
