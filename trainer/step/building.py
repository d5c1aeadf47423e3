"""Building: a model is built without memory, divided over the ranks, and only then made.

No rank ever holds more than its own part: `built_on_meta` gives the divided model on PyTorch's meta device, where a
tensor has a shape and no values; `slipway.trainer.start.drawing.allocate` gives this rank's part memory, and
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
from slipway.trainer.models.model import Data, Model
from slipway.trainer.models.outline import without_memory
from slipway.trainer.models.sequence_share import SequenceShare
from slipway.trainer.start import drawing
from slipway.trainer.step import parallel, randomness
from slipway.trainer.step.stages import StageModule, keep_stages, share_parameters, stage_model, stages_of


@dataclass(frozen=True)
class DividedModel:
    """One rank's part of a model."""

    model: Model
    """With the names of the whole model. What is divided by matrices or by FSDP is a DTensor."""
    parts: Sequence[Model]
    """What a pass goes through: the model, or a part of it for each stage of a pipeline that this rank has."""
    called: Sequence[nn.Module]
    """What a pass calls: the model, or the stages, each of which calls its part. DDP is not around them yet."""
    targets_per_sample: int
    flops_per_sample: int
    """Both of the whole model."""

    def take_share(self, share: SequenceShare | None) -> None:
        """Give all parts this rank's share of every sequence."""
        for module in (self.model, *self.parts):
            module.share = share

    def train(self, trains: bool) -> None:
        """Set whether all parts are being trained."""
        for module in (self.model, *self.parts):
            module.train(trains)


def built_on_meta(config: Config, devices: DeviceMesh | None, data: Data) -> DividedModel:
    """This rank's part of the model of `config`, without memory, and laid out over `devices` (None: over one rank).

    The rank is the one whose place in `devices` this process has. No rank talks to another. Raises ValueError for
    settings that do not fit the model.
    """
    with unset_fake_temporarily():  # a plan gives the divided model fake memory afterwards
        with without_memory():
            model = models.build(config.model, data)
        return _divided(model, config, devices)


def built(config: Config, devices: DeviceMesh | None, data: Data, device: torch.device) -> DividedModel:
    """This rank's part of the model on `device`, in memory that has no values yet but in buffers that are not saved.

    A model that does not say how it begins (`Model.initial`) is drawn whole, by its constructor, on every rank's host,
    and then moved and divided.
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
    """`model` divided over the ranks, in place; given a device, what a stage keeps is moved there first."""
    targets, flops = model.targets_per_sample, model.flops_per_sample
    _freeze(model, config.run.freeze)
    index, count = (devices["pipeline"].get_local_rank(), devices["pipeline"].size()) if devices else (0, 1)
    numbers, layers = stages_of(index, count, config.layout.stages_per_rank), len(model.blocks)
    stages = count * config.layout.stages_per_rank
    if count > 1:
        keep_stages(model, numbers, stages)
    if device is not None and any(tensor.device != device for tensor in [*model.parameters(), *model.buffers()]):
        model.to(device)  # not in a plan: what is there without memory lies there already, and cannot be moved
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
    """Stop the training of parameters whose names begin with one of these. Raises ValueError for one without any."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(name.startswith(prefix) for name in names):
            raise ValueError(f"field run.freeze: no parameter begins with {prefix!r}; there are {', '.join(names)}")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefixes))
