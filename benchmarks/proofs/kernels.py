"""Kernels: what differs by device inside a step. Each function is a part of `benchmarks.gpu_proof`."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.proofs.scene import Figures, Scene, Unprovable
from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.models.decoder import attention_mask
from slipway.trainer.models.decoder.attention import windowed
from slipway.trainer.models.norms import RMSNorm
from slipway.trainer.step.optimizers.momentum import adamw_for
from slipway.trainer.step.optimizers.muon import Muon

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
ADAMW_BYTES = 28
"""That AdamW reads and writes for each weight in fp32: weight, gradient and two moments, and all but one again."""
LARGEST_ERROR = 0.1
"""Of a gradient by products in 8 bits, of its own norm."""


def operations(scene: Scene) -> Figures:
    """Unsigned tokens, norms of mixed types, the loss, and both optimisers."""
    yield {"unsigned tokens": _unsigned_tokens(scene)}
    yield from _norms(scene)
    yield from _loss(scene)
    yield from _optimizers(scene)


def _unsigned_tokens(scene: Scene) -> str:
    """Tokens go through pinned memory as the types in which a snapshot has them."""
    for kind in (np.uint16, np.uint32):
        rows = torch.from_numpy(np.arange(8, dtype=kind))
        if scene.is_gpu:
            rows = _pinned(rows)
        assert rows.to(scene.device, non_blocking=True).long().tolist() == list(range(8))
    return "pinned" if scene.is_gpu else "equal; pinned memory needs CUDA"


def _pinned(rows: Tensor) -> Tensor:
    from slipway.trainer.loading import batches

    pinned = torch.from_numpy(batches._pinned(rows.numpy()))
    assert pinned.is_pinned()
    return pinned


def _norms(scene: Scene) -> Figures:
    width = scene.size(4096, 256)
    norm = RMSNorm(width).to(scene.device)
    stream = torch.randn(8, scene.size(2048, 64), width, device=scene.device, requires_grad=True)

    def both_ways() -> None:
        torch.autograd.backward(norm(stream).sum())

    with torch.autocast(scene.device.type, torch.bfloat16):
        yield {"norm ms": scene.milliseconds(both_ways)}
        norm.weight.data = norm.weight.data.bfloat16()
        norm.weight.grad = None
        yield {"norm with a 16-bit weight, as FSDP gathers it, ms": scene.milliseconds(both_ways)}


def _loss(scene: Scene) -> Figures:
    count, vocabulary = scene.size(16384, 64), scene.size(32768, 512)
    logits = torch.randn(count, vocabulary, device=scene.device, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(0, vocabulary, (count,), device=scene.device)

    def both_ways() -> None:
        torch.autograd.backward(F.cross_entropy(logits.float(), targets, reduction="sum"))

    yield {"loss ms": scene.milliseconds(both_ways, 3), "loss GiB": scene.peak_gibibytes(both_ways)}


def _optimizers(scene: Scene) -> Figures:
    count, width = scene.size(32, 2), scene.size(4096, 128)
    weights = [nn.Parameter(torch.randn(width, width, device=scene.device)) for _ in range(count)]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    adamw = adamw_for(weights, OptimizerConfig(learning_rate=1e-3))
    bytes_of_step = count * width**2 * ADAMW_BYTES
    yield {"AdamW GB/s": bytes_of_step / scene.milliseconds(adamw.step) / 1e6}
    muon = Muon(weights, OptimizerConfig(kind="muon", learning_rate=1e-3), None)
    yield {f"Muon of {count} x {width}^2 ms": scene.milliseconds(muon.step, 2, 1)}


def attention(scene: Scene) -> Figures:
    """Which kernel answers, and how fast: causal, causal with grouped heads, a window, documents."""
    length = scene.size(4096, 128)
    rows = scene.size(4, 1)
    causal = 3.5 * 4 * rows * 32 * length**2 * 128 / 2
    yield _attended(scene, "causal", _causal, 32, causal)
    yield _attended(scene, "grouped", _grouped, 8, causal)
    yield _attended(
        scene, "window of a quarter, grouped", lambda q, k, v: windowed(q, k, v, length // 4), 8, causal / 2
    )
    begins = (torch.arange(length, device=scene.device) // (length // 4) * (length // 4)).expand(rows, -1).contiguous()
    documents = attention_mask.sight(length, scene.device, begins, 0, None)
    assert documents is not None
    yield _attended(scene, "documents", documents.attend, 8, causal / 4)


def _causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def _attended(scene: Scene, name: str, attend: Attend, kv_heads: int, flops: float) -> dict[str, object]:
    """The figures of one way to attend, with 32 heads of 128 features."""
    length = scene.size(4096, 128)
    projections = [
        torch.randn(scene.size(4, 1), length, heads, 128, device=scene.device, dtype=torch.bfloat16, requires_grad=True)
        for heads in (32, kv_heads, kv_heads)
    ]

    def both_ways() -> None:
        query, key, value = (projection.transpose(1, 2) for projection in projections)
        torch.autograd.backward(attend(query, key, value).sum())

    both_ways()
    kernels = _kernels(scene, both_ways)
    took = scene.milliseconds(both_ways, scene.size(5, 1), 1)
    figures = {"ms": took, "TFLOP/s": flops / took / 1e9, "GiB": scene.peak_gibibytes(both_ways), "kernels": kernels}
    return {name: figures}


def _kernels(scene: Scene, act: Callable[[], None]) -> list[str]:
    """The names of the two kernels that took longest."""
    kind = torch.profiler.ProfilerActivity.CUDA if scene.is_gpu else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as profile:
        act()
    took = sorted(
        profile.key_averages(), key=lambda e: -(e.self_device_time_total if scene.is_gpu else e.self_cpu_time_total)
    )
    return [average.key[:70] for average in took[:2]]


def fp8(scene: Scene) -> Figures:
    """The three products of a matrix in 8 bits, in both ways of adding up, beside 16 bits; against fp32."""
    if not scene.is_gpu:
        raise Unprovable("needs CUDA")
    from slipway.trainer.step.parallel import eight_bits

    rows = torch.randn(16384, 4096, device=scene.device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(14336, 4096, device=scene.device, requires_grad=True)
    flops = 2 * 16384 * 4096 * 14336
    product_of_rows = eight_bits.product(rows, weight)
    gradient = torch.randn_like(product_of_rows)
    product_of_rows.backward(gradient)  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    expected = gradient.float().T @ rows.float()
    error = ((weight.grad - expected).norm() / expected.norm()).item()
    yield {"error of the weight's gradient": error}
    assert error < LARGEST_ERROR
    yield from _scaled_products(scene, rows.detach(), weight.detach(), flops)
    for name, product in (("eager", eight_bits.product), ("compiled", torch.compile(eight_bits.product))):
        took = scene.milliseconds(lambda product=product: product(rows, weight).backward(gradient), 5)  # type: ignore[misc]
        yield {f"product, both ways, {name} TFLOP/s": 3 * flops / took / 1e9}


def _scaled_products(scene: Scene, rows: Tensor, weight: Tensor, flops: int) -> Figures:
    one = torch.ones((), device=scene.device)
    activations, right = rows.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
    for fast in (False, True):
        took = scene.milliseconds(
            lambda fast=fast: torch._scaled_mm(  # type: ignore[misc]
                activations, right.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
        )
        yield {f"scaled_mm fast={fast} TFLOP/s": flops / took / 1e9}
    narrow = weight.bfloat16()
    yield {"bf16 TFLOP/s": flops / scene.milliseconds(lambda: rows @ narrow.t()) / 1e9}
    yield {
        "8-bit transpose GB/s": 2 * activations.numel() / scene.milliseconds(lambda: activations.t().contiguous()) / 1e6
    }
