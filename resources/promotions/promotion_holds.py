"""Promotion holds: a freeze, a missing approval or a cool-down keeps a candidate that passed from being promoted.

    <durable>/models/<model>/freeze.json             a freeze of all promotions, by whom and why; removed by a thaw
                             approvals/<manifest>/<n>.json   a person's approval or rejection of a checkpoint

`slipway.resources.promotions.promotion` reads them at the time of a promotion. Nothing holds back a rollback.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from slipway.trainer.base import codec
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import numbered

FREEZE = "slipway.freeze/1"
APPROVAL = "slipway.approval/1"


@dataclass(frozen=True)
class Freeze:
    """The record that no version of a model may be promoted."""

    by: str
    why: str
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Approval:
    """A person's approval or rejection of a checkpoint."""

    approved: bool
    by: str
    why: str
    at: float = field(default_factory=time.time)


class HeldJudgement(Protocol):
    """The attributes of a judgement that matter for holds."""

    @property
    def candidate(self) -> str: ...
    @property
    def approval_hours(self) -> float: ...
    @property
    def cool_down_hours(self) -> float: ...
    @property
    def rollback(self) -> bool: ...


class Dated(Protocol):
    """The time of a promotion."""

    @property
    def at(self) -> float: ...


def reason(folder: Path, judgement: HeldJudgement, promotions: Sequence[Dated], now: float | None = None) -> str:
    """Why a candidate that passed waits, or "". `folder` is the folder of the model.

    Raises UndecodableRecord for a damaged record, since an unreadable freeze is not a permission.
    """
    if judgement.rollback:
        return ""
    now = time.time() if now is None else now
    frozen = freeze(folder)
    if frozen is not None:
        return (
            f"model {folder.name} is frozen by {frozen.by}: {frozen.why}; to end it: slipway models thaw {folder.name}"
        )
    missing = _missing_approval(folder, judgement, now) if judgement.approval_hours else ""
    if missing:
        return missing
    if promotions and now < promotions[-1].at + judgement.cool_down_hours * HOUR:
        hours_left = (promotions[-1].at - now) / HOUR + judgement.cool_down_hours
        return f"the last promotion was less than {judgement.cool_down_hours:g} h ago: {hours_left:.1f} h are left"
    return ""


def awaits_approval(folder: Path, judgement: HeldJudgement) -> bool:
    """Whether a candidate that passed waits only for a person's approval, and nobody has rejected it."""
    if judgement.rollback or not judgement.approval_hours or freeze(folder) is not None:
        return False
    answers = approvals(folder, judgement.candidate)
    refused = bool(answers) and not answers[-1].approved
    return not refused and bool(_missing_approval(folder, judgement, time.time()))


def freeze(folder: Path) -> Freeze | None:
    """The freeze of a model, or None."""
    return codec.read_if_there(folder / "freeze.json", Freeze, FREEZE)


def set_freeze(folder: Path, by: str, why: str) -> Freeze:
    """Freeze a model. A frozen model keeps its first reason."""
    new_freeze = Freeze(by, why)
    codec.create_only(folder / "freeze.json", new_freeze, FREEZE)
    return freeze(folder) or new_freeze


def thaw(folder: Path) -> None:
    """End the freeze of a model."""
    (folder / "freeze.json").unlink(missing_ok=True)


def approve(folder: Path, manifest: str, approval: Approval) -> None:
    """Record a person's approval or rejection of a checkpoint. The last one counts."""
    where = folder / "approvals" / manifest
    while not numbered.add(where, len(numbered.numbers(where)) + 1, approval, APPROVAL):
        pass


def approvals(folder: Path, manifest: str) -> list[Approval]:
    """All approvals and rejections of a checkpoint in order. Raises Unreadable if a record is lost or damaged."""
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
