"""Building: a model is built without memory, divided over the ranks, and only then allocated.

So no rank ever holds more than its own part. `built_on_meta` returns the divided model on PyTorch's meta device, where
a tensor has a shape and no values. `slipway.trainer.start.drawing.allocate` gives this rank's part memory; then
`drawing.draw`, a checkpoint or the weights of another model give it values. The dry run reads the same divided model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh

from slipway.trainer import models
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.shapes import network_of
from slipway.trainer.models.context_parallel import SequenceShare
from slipway.trainer.models.model import Data, Model
from slipway.trainer.models.outline import without_memory
from slipway.trainer.start import drawing
from slipway.trainer.step import parallel, randomness
from slipway.trainer.step.stages import StageModule, keep_stages, share_parameters, stage_model, stages_of


@dataclass(frozen=True)
class DividedModel:
    """One rank's part of a model."""

    model: Model
    """With the names of the whole model. Parameters that tensor parallelism or FSDP divides are DTensors."""
    parts: Sequence[Model]
    """The model, or its part for each pipeline stage of this rank."""
    called: Sequence[nn.Module]
    """The modules that a pass calls: the model, or one `StageModule` for each stage. DDP does not wrap them yet."""
    targets_per_sample: int
    """Of the whole model."""
    flops_per_sample: int
    """Of the whole model."""

    def take_share(self, share: SequenceShare | None) -> None:
        """Set this rank's share of every sequence, for all parts."""
        for module in (self.model, *self.parts):
            module.share = share

    def train(self, trains: bool) -> None:
        """Set whether all parts are being trained."""
        for module in (self.model, *self.parts):
            module.train(trains)


def built_on_meta(config: Config, devices: DeviceMesh | None, data: Data) -> DividedModel:
    """This rank's part of the model of `config`, without memory, and laid out over `devices` (None: over one rank).

    It needs no collective. Raises ValueError for settings that do not fit the model.
    """
    with unset_fake_temporarily():  # a plan gives the divided model fake memory afterwards
        with without_memory():
            model = models.build(config.model, data)
        return _divided(model, config, devices)


def built(config: Config, devices: DeviceMesh | None, data: Data, device: torch.device) -> DividedModel:
    """This rank's part of the model on `device`, allocated; only buffers that are not saved have values yet.

    A model that does not declare its initial weights (`Model.initial`) is drawn whole by its constructor, on the host
    of every rank, and then moved and divided.
    """
    parallel.check_device(config, device)
    if drawing.says_how_it_begins(network_of(config.model.kind)):
        divided_model = built_on_meta(config, devices, data)
        drawing.allocate(nn.ModuleList(divided_model.called), divided_model.model, device)
        share_parameters(divided_model.model, divided_model.parts)
        return divided_model
    randomness.seed_for_model(config.run.seed)
    return _divided(models.build(config.model, data), config, devices, device)


def _divided(
    model: Model, config: Config, devices: DeviceMesh | None, device: torch.device | None = None
) -> DividedModel:
    """`model`, divided over the ranks in place; with a device, this rank's stages are moved there first."""
    targets = model.targets_per_sample
    flops = model.flops_per_sample
    _freeze(model, config.run.freeze)
    index = devices["pipeline"].get_local_rank() if devices else 0
    count = devices["pipeline"].size() if devices else 1
    numbers = stages_of(index, count, config.layout.stages_per_rank)
    layers = len(model.blocks)
    stages = count * config.layout.stages_per_rank
    if count > 1:
        keep_stages(model, numbers, stages)
    if device is not None and any(tensor.device != device for tensor in [*model.parameters(), *model.buffers()]):
        model.to(device)  # a plan's tensors without memory are on the device already, and cannot be moved
    parallel.divide(model, devices, config)
    parts = [stage_model(model, layers, number, stages) for number in numbers] if len(numbers) > 1 else [model]
    called: list[nn.Module] = [model]
    if count > 1:
        ends = [(number == 0, number == stages - 1) for number in numbers]
        called = [StageModule(part, config.run.precision, *end) for part, end in zip(parts, ends, strict=True)]
    for module, part in zip(called, parts, strict=True):
        parallel.shard(module, part, devices, config)
    share_parameters(model, parts)
    return DividedModel(model, parts, called, targets, flops)


def _freeze(model: nn.Module, prefixes: tuple[str, ...]) -> None:
    """Freeze the parameters whose names begin with one of these. Raises ValueError for a prefix that matches none."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise ValueError(f"field run.freeze: no parameter begins with {prefix!r}; there are {', '.join(names)}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefixes))
