"""Promotion holds: what keeps a candidate that passed from being promoted: a freeze, an approval, a cool-down.

    <durable>/models/<model>/freeze.json             that nothing is promoted, by whom and why; gone when it may again
                             approvals/<manifest>/<n>.json   that a person approved a checkpoint, or refused it

Each is read at the moment of the promotion, by the one door (`slipway.resources.promotions.promotion`). No rollback is
held.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slipway.trainer.base import codec
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import numbered

FREEZE, APPROVAL = "slipway.freeze/1", "slipway.approval/1"


@dataclass(frozen=True)
class Freeze:
    """That no version of a model is promoted."""

    by: str
    why: str
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Approval:
    """What a person said about a checkpoint."""

    approved: bool
    by: str
    why: str
    at: float = field(default_factory=time.time)


class HeldJudgement(Protocol):
    """The part of a judgement that says what it waits for."""

    @property
    def candidate(self) -> str: ...
    @property
    def approval_hours(self) -> float: ...
    @property
    def cool_down_hours(self) -> float: ...
    @property
    def rollback(self) -> bool: ...


class Dated(Protocol):
    """The part of a promotion that says when it was made."""

    @property
    def at(self) -> float: ...


def reason(folder: Path, judgement: HeldJudgement, promotions: Sequence[Dated], now: float | None = None) -> str:
    """Why a candidate that passed waits; empty for one that does not. `folder` is the model's.

    Raises UndecodableRecord for a damaged record: a freeze that cannot be read is no permission.
    """
    if judgement.rollback:
        return ""
    now = time.time() if now is None else now
    if (frozen := freeze(folder)) is not None:
        return (
            f"model {folder.name} is frozen by {frozen.by}: {frozen.why}; to end it: slipway models thaw {folder.name}"
        )
    if judgement.approval_hours and (missing := _missing_approval(folder, judgement, now)):
        return missing
    if promotions and now < promotions[-1].at + judgement.cool_down_hours * HOUR:
        hours_left = (promotions[-1].at - now) / HOUR + judgement.cool_down_hours
        return f"the last promotion was less than {judgement.cool_down_hours:g} h ago: {hours_left:.1f} h are left"
    return ""


def awaits_approval(folder: Path, judgement: HeldJudgement) -> bool:
    """Whether all that a candidate that passed waits for is that a person approves it, who has not refused it."""
    if judgement.rollback or not judgement.approval_hours or freeze(folder) is not None:
        return False
    answers = approvals(folder, judgement.candidate)
    refused = bool(answers) and not answers[-1].approved
    return not refused and bool(_missing_approval(folder, judgement, time.time()))


def freeze(folder: Path) -> Freeze | None:
    """The freeze of a model; None where it may be promoted."""
    return codec.read_if_there(folder / "freeze.json", Freeze, FREEZE)


def set_freeze(folder: Path, by: str, why: str) -> Freeze:
    """Freeze a model; one that is frozen stays so, for the first reason."""
    new_freeze = Freeze(by, why)
    codec.create_only(folder / "freeze.json", new_freeze, FREEZE)
    return freeze(folder) or new_freeze


def thaw(folder: Path) -> None:
    """Let the model's versions be promoted again."""
    (folder / "freeze.json").unlink(missing_ok=True)


def approve(folder: Path, manifest: str, approval: Approval) -> None:
    """Record what a person said about a checkpoint; what is said later counts instead."""
    where = folder / "approvals" / manifest
    while not numbered.add(where, len(numbered.numbers(where)) + 1, approval, APPROVAL):
        pass


def approvals(folder: Path, manifest: str) -> list[Approval]:
    """What was said about a checkpoint, the last one last. Raises Unreadable where a record was lost or is damaged."""
    return numbered.read_all(folder / "approvals" / manifest, Approval, APPROVAL)


def _missing_approval(folder: Path, judgement: HeldJudgement, now: float) -> str:
    answers = approvals(folder, judgement.candidate)
    ask = f"slipway models approve {folder.name} VERSION"
    if not answers:
        return f"a person must approve it: {ask}"
    if not answers[-1].approved:
        return f"{answers[-1].by} refused it: {answers[-1].why}"
    if now > answers[-1].at + judgement.approval_hours * HOUR:
        return f"the approval by {answers[-1].by} is older than {judgement.approval_hours:g} h: {ask}"
    return ""
