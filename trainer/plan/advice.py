"""Advice: what to change in a recipe that does not fit, each change measured like the recipe itself."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from slipway.trainer.config.operation import Storage
from slipway.trainer.plan.measure import StageMeasure
from slipway.trainer.plan.question import Question, with_fields
from slipway.trainer.plan.room import Room
from slipway.trainer.plan.verdict import judge

Measured = Callable[[Question], Sequence[StageMeasure]]
"""Answers a question. Raises ValueError for a layout that does not fit its ranks."""


def advice(question: Question, measured: Measured, room: Room, storage: Storage) -> list[str]:
    """The changes, as FIELD=VALUE, with which the training fits: the first ones of a fixed order that are enough.

    Empty when all of them together are not enough. Changes that do not change the numbers of a step come first.
    """
    made: list[str] = []
    for field, value in _changes(question, room):
        changed = _with(question, field, value)
        try:
            verdict = judge(changed, measured(changed), room, storage)
        except ValueError:  # this change does not fit the model or the ranks
            continue
        question = changed
        made.append(f"{field}={value}")
        if verdict.fits:
            return made
    return []


def _changes(question: Question, room: Room) -> Iterator[tuple[str, Any]]:
    layout, shape = question.layout, question.model
    if layout.activations != "recompute" and shape.recomputes:
        yield "layout.activations", "recompute"
    if layout.shard != "full" and question.mesh.gradient_ranks > 1:
        yield "layout.shard", "full"
    if question.batch.micro > 1:
        yield "batch.micro", 1
    if layout.tensor < question.ranks_per_node and shape.divided:
        yield "layout.tensor", question.ranks_per_node
    most = room.profile.nodes if room.profile else question.nodes
    nodes = question.nodes * 2
    while nodes <= most:
        yield "placement.nodes", nodes
        nodes *= 2


def _with(question: Question, field: str, value: Any) -> Question:
    section, _, name = field.partition(".")
    if section == "placement":
        return dataclasses.replace(question, nodes=value)
    changed: Mapping[str, Any] = {section: {name: value}}
    return with_fields(question, **changed)
