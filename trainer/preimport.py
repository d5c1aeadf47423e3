"""Imports in advance: all imports of a configuration's ranks, done once before the ranks are forked.

This module must not touch a GPU or compute with tensors: forked processes would inherit a broken CUDA context, or
broken threads of OpenMP.
"""

import gc
import importlib
import os

from slipway.trainer.config import shapes
from slipway.trainer.config.resolved import Config
from slipway.trainer.node import settings

ALWAYS = (
    "slipway.trainer.run",
    "slipway.trainer.elastic.process_groups",
    # Of the first save and of a restore, which import them late so that a rank alone does not wait for them.
    "slipway.trainer.checkpoint.saving.planning",
    "slipway.trainer.checkpoint.disk.load_plan",
    "torch.distributed.checkpoint.utils",
)
TOGETHER = ("torch.nn.parallel.distributed", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor")
"""DDP imports the compiler when it is made."""
DIVIDED = ("torch.distributed.tensor.parallel", "torch.distributed.device_mesh")
COMPILED = ("torch._dynamo", "torch._inductor.compile_fx")
PIPELINED = ("torch.distributed.pipelining",)


def load(config: Config, alone: bool) -> None:
    """Import the modules that the ranks of this configuration need; `alone`: whether there is only one rank."""
    # The driver's library tells whether there is a GPU, without a context.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    settings.set_environment(config, os.environ)  # torch reads some variables when it is imported
    for module in modules(config, alone):
        importlib.import_module(module)
    shapes.network_of(config.model.kind)
    gc.collect()
    gc.freeze()  # a collection in a rank would copy the pages of all that it shares with the supervisor


def modules(config: Config, alone: bool) -> tuple[str, ...]:
    """The modules to import for a configuration."""
    layout = config.layout
    divided = layout.shard != "none" or layout.tensor > 1 or layout.context > 1
    return (
        *ALWAYS,
        *(() if alone else TOGETHER),
        *(DIVIDED if divided else ()),
        *(PIPELINED if layout.pipeline > 1 else ()),
        *(COMPILED if layout.compile else ()),
    )
