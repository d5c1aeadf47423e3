"""One device: matrix products in all precisions for training, and the bandwidth and size of its memory."""

import time
from collections.abc import Callable, Iterator

import torch

from slipway.trainer.base.units import GIB
from slipway.trainer.config.hardware import card
from slipway.trainer.preflight.findings import Finding, rate

DATA_SHEET = "NVIDIA's data sheet, dense"
FP8_CAPABILITY = (8, 9)
"""Tensor cores multiply 8-bit floats from this compute capability on."""


def throughput(device: torch.device, seconds: float) -> Iterator[Finding]:
    """TFLOP/s of square products in every precision, large enough for the device, then GB/s of a memory copy."""
    sheet = card(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    side = 8192 if device.type == "cuda" else 1024
    names = precisions(device)
    for name in names:
        taken = seconds_each(product(name, side, device), device, seconds / (len(names) + 1))
        peak = sheet.flops[name] / 1e12 if sheet else None
        teraflops = 2 * side**3 / taken / 1e12
        note = f"{side} x {side}"
        yield rate(f"matrix product {name}", teraflops, "TFLOP/s", peak, DATA_SHEET, note)
    size = GIB if device.type == "cuda" else GIB // 4
    source, target = (torch.ones(size // 4, device=device) for _ in range(2))
    taken = seconds_each(lambda: target.copy_(source), device, seconds / (len(names) + 1))
    bandwidth = sheet.bandwidth / 1e9 if sheet else None
    yield rate("memory copy", 2 * size / taken / 1e9, "GB/s", bandwidth, DATA_SHEET, "read and written")


def free_memory(device: torch.device) -> Finding:
    """A GPU's free memory beside that of its data sheet: other processes and retired pages reduce it."""
    free, _ = torch.cuda.mem_get_info(device)
    sheet = card(torch.cuda.get_device_name(device))
    return rate("GPU memory free", free / GIB, "GiB", sheet.memory if sheet else None, DATA_SHEET)


def precisions(device: torch.device) -> tuple[str, ...]:
    """The precisions in which the device multiplies matrices."""
    if device.type != "cuda":
        return "fp32", "bf16"
    eight_bits = torch.cuda.get_device_capability(device) >= FP8_CAPABILITY
    return "fp32", "tf32", "fp16", "bf16", *(("fp8",) if eight_bits else ())


def product(precision: str, side: int, device: torch.device) -> Callable[[], object]:
    """A product of two side x side matrices, ready to be called again and again."""
    first, second = (torch.randn(side, side, device=device) for _ in range(2))
    if precision == "fp8":
        one = torch.ones((), device=device)
        small = first.to(torch.float8_e4m3fn)
        turned = second.to(torch.float8_e4m3fn).t()
        return lambda: torch._scaled_mm(small, turned, one, one, out_dtype=torch.bfloat16)
    if precision == "tf32":
        return lambda: _with_tensor_cores(first, second)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    first = first.to(dtype)
    second = second.to(dtype)
    return lambda: first @ second


def _with_tensor_cores(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return first @ second
    finally:
        torch.set_float32_matmul_precision(before)


def seconds_each(act: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Seconds of one call: the mean over as many as fit into `seconds`, after one to warm up."""
    _seconds(act, device, 1)
    once = _seconds(act, device, 1)
    count = max(1, int((seconds - 2 * once) / once))
    return _seconds(act, device, count) / count


def _seconds(act: Callable[[], object], device: torch.device, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        act()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begun
