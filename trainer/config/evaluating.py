"""Evaluating: where a checkpoint's evaluation may run, and the configuration of its ranks. Pure, without torch.

An evaluation has no gradients and no optimiser: its ranks have shares of the weights (FSDP) or of each matrix (tensor
parallelism), whatever layout the training had. It computes in fp32, so that one process and many ranks agree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import layout, resolved
from slipway.trainer.config.layout import UnfitLayout
from slipway.trainer.config.operation import Evaluation, Hardware, Layout, Placement
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Batch, Checkpoint, OptimizerConfig, Run

NOWHERE = Placement(store="/nowhere", durable="/nowhere", nvme="/nowhere")
"""An evaluation writes to no tier, and a request says where it reads."""


@dataclass(frozen=True)
class RankPlaces:
    """Ranks on nodes."""

    nodes: int
    ranks_per_node: int

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def candidates(evaluation: Evaluation, nodes: int, ranks_per_node: int) -> list[RankPlaces]:
    """Where the job may run on at most `nodes` nodes, the fewest ranks first: on a part of one node, or on whole ones.

    Raises UnfitLayout when `evaluation.ranks` is given, and is none of these numbers.
    """
    part = [RankPlaces(1, ranks) for ranks in range(1, ranks_per_node) if ranks_per_node % ranks == 0]
    every = [*part, *(RankPlaces(count, ranks_per_node) for count in range(1, nodes + 1))]
    options = [
        option for option in every if evaluation.ranks in (0, option.ranks) and option.ranks % evaluation.tensor == 0
    ]
    if not options:
        numbers = ", ".join(str(option.ranks) for option in every[:8]) + (", ..." if len(every) > 8 else "")
        where = f"{nodes} nodes of {ranks_per_node} ranks"
        if evaluation.ranks:
            raise UnfitLayout("evaluation.ranks", evaluation.ranks, f"0 or one of {numbers}, for {where}")
        raise UnfitLayout("evaluation.tensor", evaluation.tensor, f"a divisor of one of {numbers}, for {where}")
    return options


def configuration(settings: Mapping[str, Any], evaluation: Evaluation, ranks: int) -> Config:
    """The configuration of an evaluation on `ranks` ranks; `settings` is that of the training. Raises Invalid."""
    return Config(
        training=settings.get("training", "evaluation"),
        snapshot="0" * 64,
        model=resolved.shape(settings["model"]),
        batch=Batch(sequences=ranks, length=settings["batch"].get("length", 0), micro=1),
        optimizer=OptimizerConfig(learning_rate=1.0),
        run=Run(steps=1, seed=settings["run"].get("seed", 0)),
        checkpoint=Checkpoint(every=1),
        layout=Layout(shard="full" if ranks > 1 else "none", tensor=evaluation.tensor if ranks > 1 else 1),
        evaluation=evaluation,
        hardware=codec.build(Hardware, settings.get("hardware", {}), "hardware"),
        placement=NOWHERE,
    )


def check(config: Config, option: RankPlaces) -> None:
    """Raises UnfitLayout, with the field of the recipe, when the model cannot be divided so."""
    try:
        layout.check(config, option.ranks, option.ranks_per_node)
    except UnfitLayout as fault:
        raise UnfitLayout(fault.field.replace("layout.", "evaluation."), fault.actual, fault.expected) from None


def fitting(config: Mapping[str, Any], evaluation: Evaluation, nodes: int, ranks_per_node: int) -> Iterator[RankPlaces]:
    """The places that the model's division allows, the fewest ranks first.

    Raises UnfitLayout when there is none, with the reason of the first.
    """
    reason: Invalid | None = None
    has_fit = False
    for option in candidates(evaluation, nodes, ranks_per_node):
        try:
            check(configuration(config, evaluation, option.ranks), option)
        except UnfitLayout as fault:
            reason = reason or fault
            continue
        has_fit = True
        yield option
    if not has_fit and reason:
        raise reason
