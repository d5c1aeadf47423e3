"""The promotion log: which checkpoints became the champion of a model, in order. Read without MLflow.

    <durable>/models/<model>/promotions/<n>.json   the n-th promotion, a numbered log with copies; the last one applies
                             promotions.journal    promotions that an earlier version recorded
                             mirrored.json         the number of promotions that MLflow's alias has followed

The log is the source of truth, which MLflow follows. A lost record raises an error that names it, and the champion is
unknown until the record is restored or a person acknowledges the loss (`acknowledge`). If the newest record is lost,
its copy shows this, or MLflow's alias has followed more promotions than there are.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec, listing
from slipway.trainer.record import files, numbered

JUDGEMENT = "slipway.judgement/1"
PROMOTION = "slipway.promotion/1"
SENT_BACK = "the_champion_failed_where_it_served"
"""The check in the judgement of a promotion that ends the championship of a version that failed in serving."""


class LostPromotion(files.Unreadable):
    """The record of a promotion is lost, so the champion is unknown."""


NOT_EXAMINED = "not examined: "
"""The beginning of the note of a check that was skipped, because the candidate had already failed."""


@dataclass(frozen=True)
class Judgement:
    """The gate's judgement of one candidate."""

    model: str
    candidate: str
    """The SHA-256 of the manifest of the judged checkpoint."""
    champion: str
    """The manifest of the champion with which it was compared, or ""."""
    checks: Mapping[str, bool]
    """The outcome of each check, by name."""
    by: str
    at: float = field(default_factory=time.time)
    """Seconds since the epoch, for people."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The values that the checks compared."""
    undecided: str = ""
    """Why the candidate could not be judged, and what to do; "" if it was judged."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes of everything that was compared, and of the policy."""
    approval_hours: float = 0.0
    """How long a person's approval is valid; 0 if no approval is required."""
    cool_down_hours: float = 0.0
    """The minimum time since the last promotion."""
    rollback: bool = False
    """Whether a former champion comes back. Nothing holds back a rollback."""

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(self.checks.values()) and not self.undecided

    @property
    def failed(self) -> list[str]:
        """The failed checks, without those that were not examined."""
        check_figures: Mapping[str, Mapping[str, Any]] = self.figures.get("checks", {})
        not_examined = {
            name
            for name, figures_of_check in check_figures.items()
            if str(figures_of_check.get("note", "")).startswith(NOT_EXAMINED)
        }
        return [name for name, passed in self.checks.items() if not passed and name not in not_examined]


@dataclass(frozen=True)
class Promotion:
    """The record that a version became the champion."""

    model: str
    version: str
    manifest: str
    """The SHA-256 of its checkpoint's manifest, which identifies the checkpoint regardless of MLflow's number."""
    before: str | None
    """The champion before; None for the first promotion."""
    source: str
    tags: Mapping[str, str]
    by: str
    why: str
    at: float
    judgement: Judgement | None = None
    """The judgement that allowed it; None for a promotion of an earlier version of Slipway."""


def champion(durable: Path, model: str) -> Promotion | None:
    """The champion of a model, which is the last promotion; None before the first, and after a demotion.

    Read without MLflow, whose alias may lag behind. Raises as `history`.
    """
    known = history(durable, model)
    return known[-1] if known and known[-1].version else None


def champions(durable: Path, model: str) -> list[Promotion]:
    """The promotions of the last two promoted checkpoints: the champion, and the target of a rollback.

    Raises as `history`, since a lost record makes them unknown.
    """
    newest: dict[str, Promotion] = {}
    for promotion in reversed(history(durable, model)):
        if promotion.manifest:
            newest.setdefault(promotion.manifest, promotion)
    return list(newest.values())[:2]


def models(durable: Path) -> list[str]:
    """The names of the models with records."""
    return listing.folders_if_there(durable / "models")


def is_mirrored(durable: Path, model: str) -> bool:
    """Whether Slipway has updated MLflow's alias to the last promotion."""
    return followed(durable, model) == len(history(durable, model))


def followed(durable: Path, model: str) -> int:
    """The number of promotions to which Slipway has updated MLflow's alias."""
    mirrored = codec.read_if_whole(folder_of(durable, model) / "mirrored.json", dict[str, int])
    return (mirrored or {}).get("promotions", 0)


def judged(durable: Path, model: str, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint, or None. Works without MLflow. Raises UndecodableRecord."""
    return codec.read_if_there(judgement_path(durable, model, manifest), Judgement, JUDGEMENT)


def history(durable: Path, model: str) -> list[Promotion]:
    """All promotions of a model in order; the last one is that of the champion. Works without MLflow.

    Raises LostPromotion if a record is missing, Unreadable if one is damaged together with its copy, and
    UndecodableRecord for a record of another version, since the champion is unknown without it.
    """
    least = followed(durable, model)  # read before the records, since there are at least as many records
    try:
        return numbered.read_all(_log(durable, model), Promotion, PROMOTION, least)
    except numbered.LostRecord as error:
        lost_for_good = f"slipway models rollback {model} VERSION --although-lost"
        raise LostPromotion(
            f"model {model}: {error}. Until then the champion is unknown; if the record is lost for good, choose the "
            f"champion: {lost_for_good}"
        ) from None


def acknowledge(durable: Path, model: str, by: str, why: str) -> list[int]:
    """Replace each lost record by an empty one; returns their numbers. The caller must hold the model's lock.

    Raises Unreadable and OSError.
    """
    lost = numbered.lost(_log(durable, model), followed(durable, model))
    for number in lost:
        reason = f"the record of promotion {number} was lost: {why}"
        add(durable, number, Promotion(model, "", "", None, "", {}, by, reason, time.time()))
    return lost


def withdrawals(known: Sequence[Promotion]) -> dict[str, Promotion]:
    """The records that ended the championship of demoted or sent-back checkpoints, by the checkpoint's manifest.

    Checkpoints that were promoted again are not included.
    """
    ended_by: dict[str, Promotion] = {}
    current: Promotion | None = None
    for promotion in known:
        ended = promotion.judgement is not None and SENT_BACK in promotion.judgement.checks
        if current is not None and (ended or (not promotion.version and promotion.before is not None)):
            ended_by[current.manifest] = promotion
        ended_by.pop(promotion.manifest, None)
        current = promotion if promotion.version else None
    return ended_by


def next_number(durable: Path, model: str) -> int:
    """The number of the next promotion. Read it before deciding, since `add` compares with it. Raises Unreadable."""
    return numbered.newest(_log(durable, model)) + 1


def add(durable: Path, number: int, promotion: Promotion) -> bool:
    """Add a promotion to its model's log. Returns False if the number is taken. Raises OSError."""
    return numbered.add(_log(durable, promotion.model), number, promotion, PROMOTION)


def is_outdated(durable: Path, judgement: Judgement) -> bool:
    """Whether another version has become the champion since the judgement."""
    current = champion(durable, judgement.model)
    return (current.manifest if current else "") != judgement.champion


def folder_of(durable: Path, model: str) -> Path:
    """The folder of a model's records."""
    return durable / "models" / model


def judgement_path(durable: Path, model: str, manifest: str) -> Path:
    """The file of the newest judgement of a checkpoint."""
    return folder_of(durable, model) / "judgements" / f"{manifest}.json"


def _log(durable: Path, model: str) -> Path:
    return folder_of(durable, model) / "promotions"
