"""Optimisers: the table of those that `optimiser.kind` may name, each with the function that builds it.

To add one: write a function of a model and the section `optimiser`, in a file here; give it a line in `BUILDERS` and in
`COPIES`; and
add its name to `trainer.config.sections.Optimiser.kind`, with a field there for each new setting.
"""

from collections.abc import Callable

from torch.optim import Optimizer

from trainer.config.sections import Optimiser
from trainer.models.model import Model
from trainer.step.optimisers.momentum import adam, adamw, sgd
from trainer.step.optimisers.muon import muon

BUILDERS: dict[str, Callable[[Model, Optimiser], Optimizer]] = {
    "adamw": adamw,
    "adam": adam,
    "sgd": sgd,
    "muon": muon,
}

COPIES = {"adamw": 2, "adam": 2, "sgd": 1, "muon": 1}
"""Tensors as large as a parameter that the state of each has, at least: Muon has two for what is no matrix."""


def build(model: Model, config: Optimiser) -> Optimizer:
    """The optimiser of the configuration for the trained parameters of `model`, which may be DTensors."""
    return BUILDERS[config.kind](model, config)
