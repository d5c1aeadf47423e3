"""The peak arithmetic (the denominator of MFU) and the memory of GPUs, by NVIDIA's data sheets."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Card:
    """One kind of GPU."""

    memory: float
    """GiB, as nvidia-smi shows them."""
    bandwidth: float
    """Bytes/s to and from its memory."""
    flops: dict[str, float]
    """Dense FLOP/s by precision; fp32 is without tensor cores, as PyTorch multiplies by default."""


CARDS = {
    "H200 NVL": Card(140, 4.8e12, {"fp32": 60e12, "tf32": 417e12, "fp16": 835e12, "bf16": 835e12, "fp8": 1671e12}),
    "H200": Card(140, 4.8e12, {"fp32": 67e12, "tf32": 494e12, "fp16": 989e12, "bf16": 989e12, "fp8": 1979e12}),
    "H100 NVL": Card(93, 3.9e12, {"fp32": 60e12, "tf32": 417e12, "fp16": 835e12, "bf16": 835e12, "fp8": 1671e12}),
    "H100 PCIe": Card(79, 2.0e12, {"fp32": 51e12, "tf32": 378e12, "fp16": 756e12, "bf16": 756e12, "fp8": 1513e12}),
    "H100": Card(79, 3.35e12, {"fp32": 67e12, "tf32": 494e12, "fp16": 989e12, "bf16": 989e12, "fp8": 1979e12}),
    "A100-SXM4-80GB": Card(80, 2.039e12, {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}),
    "A100 80GB": Card(80, 1.935e12, {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}),
    "A100": Card(40, 1.555e12, {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}),
}
"""Data sheets by name; a device has the first one whose name is part of the device's name."""


def card(name: str) -> Card | None:
    """The data sheet of a device, by its name in PyTorch; None when there is none."""
    return next((sheet for known, sheet in CARDS.items() if known in name), None)


@functools.cache
def peak_flops(device: "torch.device", precision: str) -> float | None:
    """Dense FLOP/s of the device in this precision; None when no data sheet has it (CPUs)."""
    if device.type != "cuda":
        return None
    import torch

    sheet = card(torch.cuda.get_device_name(device))
    return sheet.flops.get(precision) if sheet else None
