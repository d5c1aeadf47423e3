"""The log of promotions: which checkpoint became the champion of a model, in its order. Read without MLflow.

    <durable>/models/<model>/promotions/<n>.json   the n-th promotion, a numbered log with copies; the last one holds
                             mirrored.json         how many promotions MLflow's alias has followed

The log is the truth: what MLflow says of a champion follows it. A record that was lost is an error that names it, and
no champion is known until it is restored, or a person says that it is lost for good (`acknowledge`). The newest one is
missed by its copy, or because MLflow's alias has followed more promotions than there are.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec, listing
from slipway.trainer.record import files, numbered

JUDGEMENT, PROMOTION = "slipway.judgement/1", "slipway.promotion/1"
SENT_BACK = "the_champion_failed_where_it_served"
"""The check in the judgement of a promotion that takes the championship from what failed where it served."""


class LostPromotion(files.Unreadable):
    """A promotion that was recorded is gone: nobody knows who the champion is."""


NOT_EXAMINED = "not examined: "
"""How the note of a check begins that was not made, because the candidate had failed without it."""


@dataclass(frozen=True)
class Judgement:
    """What the gate found about one candidate."""

    model: str
    candidate: str
    """The SHA-256 of the manifest of the checkpoint that was judged."""
    champion: str
    """The manifest of the champion that it was compared with; empty when there was none."""
    checks: Mapping[str, bool]
    """The outcome of each check, by its name."""
    by: str
    at: float = field(default_factory=time.time)
    """Seconds since the epoch, for people."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """What the checks compared."""
    undecided: str = ""
    """Why the candidate could not be judged, and what to do; empty when it was."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The hashes of all that was compared, and of the policy."""
    approval_hours: float = 0.0
    """For how long a person's approval, which it needs, counts; 0 for one that needs none."""
    cool_down_hours: float = 0.0
    """How long after the promotion before it may be promoted."""
    rollback: bool = False
    """Whether a former champion comes back: nothing holds that."""

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(self.checks.values()) and not self.undecided

    @property
    def failed(self) -> list[str]:
        """The checks that were made and not passed."""
        check_figures: Mapping[str, Mapping[str, Any]] = self.figures.get("checks", {})
        not_examined = {
            name
            for name, figures_of_check in check_figures.items()
            if str(figures_of_check.get("note", "")).startswith(NOT_EXAMINED)
        }
        return [name for name, passed in self.checks.items() if not passed and name not in not_examined]


@dataclass(frozen=True)
class Promotion:
    """That a version became the champion."""

    model: str
    version: str
    manifest: str
    """The SHA-256 of its checkpoint's manifest: which checkpoint it is, whatever MLflow numbers it."""
    before: str | None
    """The version that was the champion before; None for the first."""
    source: str
    tags: Mapping[str, str]
    by: str
    why: str
    at: float
    judgement: Judgement | None = None
    """The record that allowed it; None for what stands in the place of a lost promotion."""


def champion(durable: Path, model: str) -> Promotion | None:
    """The champion of a model: the last promotion. None before the first one, and when it was demoted.

    Read without MLflow, whose alias may lag behind. Raises as `history`.
    """
    known = history(durable, model)
    return known[-1] if known and known[-1].version else None


def champions(durable: Path, model: str) -> list[Promotion]:
    """The promotions of the two checkpoints promoted last: the champion, and the one that a rollback brings back.

    Raises as `history`: where a record was lost, nobody knows which these are.
    """
    newest: dict[str, Promotion] = {}
    for promotion in reversed(history(durable, model)):
        if promotion.manifest:
            newest.setdefault(promotion.manifest, promotion)
    return list(newest.values())[:2]


def models(durable: Path) -> list[str]:
    """The models that have records here, by name."""
    return listing.folders_if_there(durable / "models")


def is_mirrored(durable: Path, model: str) -> bool:
    """Whether MLflow's alias follows the last promotion, as far as we had it follow."""
    return followed(durable, model) == len(history(durable, model))


def followed(durable: Path, model: str) -> int:
    """How many promotions MLflow's alias has followed, as far as we had it follow."""
    mirrored = codec.read_if_whole(folder_of(durable, model) / "mirrored.json", dict[str, int])
    return (mirrored or {}).get("promotions", 0)


def judged(durable: Path, model: str, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint; read without MLflow. Raises UndecodableRecord for a damaged record."""
    return codec.read_if_there(judgement_path(durable, model, manifest), Judgement, JUDGEMENT)


def history(durable: Path, model: str) -> list[Promotion]:
    """Every promotion of a model, the last one being the champion's; read without MLflow.

    Raises LostPromotion where a record is missing, Unreadable where one is damaged and so is its copy, and
    UndecodableRecord for one of another version: without it, nobody knows who the champion is.
    """
    least = followed(durable, model)  # before the records: these are never fewer than what was followed
    try:
        return numbered.read_all(_log(durable, model), Promotion, PROMOTION, least)
    except numbered.LostRecord as error:
        lost_for_good = f"slipway models rollback {model} VERSION --although-lost"
        raise LostPromotion(
            f"model {model}: {error}. Until then nobody knows who the champion is; if it is lost for good, choose the "
            f"champion: {lost_for_good}"
        ) from None


def acknowledge(durable: Path, model: str, by: str, why: str) -> list[int]:
    """Put a record that says nothing in the place of each that was lost; their numbers. For the model's one writer.

    Raises Unreadable and OSError.
    """
    lost = numbered.lost(_log(durable, model), followed(durable, model))
    for number in lost:
        reason = f"the record of promotion {number} was lost, and with it what it said: {why}"
        add(durable, number, Promotion(model, "", "", None, "", {}, by, reason, time.time()))
    return lost


def withdrawals(known: Sequence[Promotion]) -> dict[str, Promotion]:
    """By manifest, the checkpoints of a history that were the champion until they were demoted or sent back.

    Each with the record that ended it. One that was promoted again since is none of them.
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
    """The number of the promotion that comes next; read before what is decided, as `add` compares with it.

    Raises Unreadable.
    """
    return numbered.newest(_log(durable, model)) + 1


def add(durable: Path, number: int, promotion: Promotion) -> bool:
    """Add a promotion to its model's log under this number; False where another one has it. Raises OSError."""
    return numbered.add(_log(durable, promotion.model), number, promotion, PROMOTION)


def is_outdated(durable: Path, judgement: Judgement) -> bool:
    """Whether another version has become the champion since."""
    current = champion(durable, judgement.model)
    return (current.manifest if current else "") != judgement.champion


def folder_of(durable: Path, model: str) -> Path:
    """The folder of a model's records."""
    return durable / "models" / model


def judgement_path(durable: Path, model: str, manifest: str) -> Path:
    """The newest judgement of a checkpoint."""
    return folder_of(durable, model) / "judgements" / f"{manifest}.json"


def _log(durable: Path, model: str) -> Path:
    return folder_of(durable, model) / "promotions"
