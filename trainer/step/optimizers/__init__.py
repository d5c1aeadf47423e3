"""Optimisers: a table of the names for `optimizer.kind`, each with the function that builds the optimiser.

To add one: write a function of a model, the section `optimizer` and a group of ranks (see `build`), in a file here;
give it a line in `BUILDERS`; and add its name to `kind` and `copies` of
`slipway.trainer.config.sections.OptimizerConfig`, with a field there for each new setting.
"""

from collections.abc import Callable

from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.models.model import Model
from slipway.trainer.step.optimizers.momentum import adam, adamw, sgd
from slipway.trainer.step.optimizers.muon import muon

BUILDERS: dict[str, Callable[[Model, OptimizerConfig, ProcessGroup | None], Optimizer]] = {
    "adamw": adamw,
    "adam": adam,
    "sgd": sgd,
    "muon": muon,
}


def build(model: Model, config: OptimizerConfig, copies: ProcessGroup | None = None) -> Optimizer:
    """The optimiser of the configuration for the trained parameters of `model`, which may be DTensors.

    copies: the ranks that hold the same whole model and get the same gradients; an optimiser may divide its work
    between them. None for this rank alone.
    """
    return BUILDERS[config.kind](model, config, copies)
