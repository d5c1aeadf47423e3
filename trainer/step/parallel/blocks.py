"""Recomputation and compilation of blocks.

Both replace a block's `forward` and nothing else, so its name, its parameters' names and its hooks stay.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from slipway.trainer.config.operation import Layout
from slipway.trainer.models.model import Model

aten = torch.ops.aten
SAVED_OPERATIONS = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten._scaled_mm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.all_reduce.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
"""The operations whose results selective recomputation keeps: matrix products, attention, communication."""


def set_forward(model: Model, layout: Layout) -> None:
    """Make the model's blocks recompute and compile as the layout says, in place."""
    for block in model.blocks:
        if layout.activations != "keep":
            block.forward = _recomputed(block.forward, layout.activations == "selective")
        if layout.compile:
            block.forward = torch.compile(block.forward)


def compiled_graphs() -> dict[str, int]:
    """Graphs that PyTorch's compiler has `compiled`, and graphs that it `found` in its cache.

    It imports the compiler, so call it only if the layout compiles blocks.
    """
    from torch._dynamo.utils import counters

    counted = counters["inductor"]
    return {
        "compiled": counted["fxgraph_cache_miss"] + counted["fxgraph_cache_bypass"],
        "found": counted["fxgraph_cache_hit"],
    }


def _recomputed(forward: Callable[..., Any], selective: bool) -> Callable[..., Any]:
    """`forward`, which runs again in the backward pass to compute the values that it did not save."""
    if not selective:
        return functools.partial(checkpoint, forward, use_reentrant=False)
    keeping = functools.partial(create_selective_checkpoint_contexts, _policy)
    return functools.partial(checkpoint, forward, use_reentrant=False, context_fn=keeping)


def _policy(_: object, operation: object, *arguments: Any, **options: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in SAVED_OPERATIONS else CheckpointPolicy.PREFER_RECOMPUTE
