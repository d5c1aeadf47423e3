"""What the hardware can do: peak arithmetic, the denominator of MFU."""

import functools

import torch

BF16_PEAK_FLOPS = {
    "H100 NVL": 835e12,
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
}
"""Dense bf16 FLOP/s by device name, the first that is contained in it (NVIDIA's data sheets)."""


@functools.cache
def peak_flops(device: torch.device, precision: str) -> float | None:
    """Dense FLOP/s of the device in this precision; None where no data sheet says (CPUs, fp32)."""
    if device.type != "cuda" or precision != "bf16":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for known, peak in BF16_PEAK_FLOPS.items() if known in name), None)
