"""The plan's question: the sections of a configuration that decide memory and traffic, and where it would run.

It is plain data, without torch, for recipes and launches; its digest is part of the key of cached answers.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from slipway.trainer.base import atomic, codec, digest
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import layout
from slipway.trainer.config.layout import Mesh
from slipway.trainer.config.operation import Layout, Placement
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Batch, Checkpoint, Communication, OptimizerConfig, Run
from slipway.trainer.config.shapes import Data, Shape

Kernels = Literal["cuda", "cpu"]
VERSION = "slipway.plan-question/1"
NOWHERE = Placement(store="/nowhere", durable="/nowhere", nvme="/nowhere")
"""A plan reads and writes no tier."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One training on a number of nodes."""

    model: Shape
    batch: Batch
    optimizer: OptimizerConfig
    run: Run
    layout: Layout
    communication: Communication
    data: Data
    nodes: int
    ranks_per_node: int
    kernels: Kernels = "cuda"
    """The device whose kernels run: a CPU's save more for the backward pass."""

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @cached_property
    def mesh(self) -> Mesh:
        """The mesh of the ranks. Raises ValueError, with the field, for a layout that does not fit them."""
        try:
            return layout.check(self, self.ranks, self.ranks_per_node)
        except Invalid as fault:
            raise ValueError(f"field {fault.field}: {fault}") from None

    @property
    def digest(self) -> str:
        """The same for every question with the same answer."""
        return digest.sha256(atomic.canonical_json(codec.document(self, VERSION)))

    def config(self) -> Config:
        """A configuration with these sections, for the trainer's own code."""
        return Config(
            training="plan",
            snapshot="0" * 64,
            model=self.model,
            batch=self.batch,
            optimizer=self.optimizer,
            run=self.run,
            checkpoint=Checkpoint(every=self.communication.local_steps),
            communication=self.communication,
            layout=self.layout,
            placement=NOWHERE,
        )


def of_config(config: Config, data: Data, nodes: int, ranks_per_node: int, kernels: Kernels) -> Question:
    """The question of a resolved configuration."""
    names = ("model", "batch", "optimizer", "run", "layout", "communication")
    sections: dict[str, Any] = {name: getattr(config, name) for name in names}
    return Question(**sections, data=data, nodes=nodes, ranks_per_node=ranks_per_node, kernels=kernels)


def document(question: Question) -> dict[str, Any]:
    """The question as JSON has it."""
    return codec.document(question, VERSION)


def build(value: Mapping[str, Any]) -> Question:
    """The question that `document` made. Raises Invalid."""
    fields = {name: field for name, field in value.items() if name != "format"}
    return codec.build(Question, fields)


def with_fields(question: Question, **sections: Mapping[str, Any]) -> Question:
    """The question with other values in its sections: `layout={"activations": "recompute"}`."""
    changed = {name: dataclasses.replace(getattr(question, name), **values) for name, values in sections.items()}
    return dataclasses.replace(question, **changed)
