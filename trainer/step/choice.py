"""Which passes take a step's micro-batches through a divided model: those of one stage, or those of a pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from slipway.trainer.config.resolved import Config
from slipway.trainer.figures.timeline import Timeline
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.building import DividedModel
from slipway.trainer.step.passes import Passes
from slipway.trainer.step.stages import StageModule

if TYPE_CHECKING:
    from slipway.trainer.step.pipeline import PipelinePasses


def passes_of(
    divided: DividedModel,
    called: Sequence[nn.Module],
    devices: DeviceMesh | None,
    config: Config,
    data: Data,
    world: World,
    timeline: Timeline,
) -> "Passes | PipelinePasses":
    """The passes of this rank; `called` are the modules to call, one for each of its stages."""
    if devices is None or world.mesh.pipeline == 1:
        (whole,) = called
        return Passes(divided.model, whole, config, world.device, timeline)
    # Imported only here: PyTorch's pipelines import its compiler.
    from slipway.trainer.step.pipeline import PipelinePasses

    stages = [each for each in divided.called if isinstance(each, StageModule)]
    return PipelinePasses(divided.model, stages, called, devices, config, data, world.device, timeline)
