"""Promotion: the one operation that makes a version the champion, and the records that it needs and leaves.

    <durable>/models/<model>/judgements/<manifest>.json   what the gate found about a checkpoint; the newest judgement
                             evidence/<sha256>.json       every judgement ever made, immutable, named by its bytes
                             promotions/<n>.json          the n-th promotion (`promotion_log`)

Whoever promotes (an asset, a person who rolls back), `promote` reads the gate's judgement itself, refuses unless it is
about this very checkpoint and the champion of now, and compares and sets alone: one process at a time by a lock of the
model's folder, and by a numbered record that only one writer creates where a file system ignores locks. MLflow's alias
follows the last record: at once, or when MLflow is back (`slipway.sensors.promotions`). A freeze, an approval that is
missing and a cool-down hold a promotion back (`slipway.resources.promotions.promotion_holds`), but no rollback.

A champion that failed where it served is champion no more (`send_back`): the log of promotions alone is written, by
compare-and-set. Why a candidate that was judged is no champion yet (`undecided`, `held_back`), and which versions may
answer for a model (`refusal_to_answer`, the one door of all that serves), is read without MLflow. A champion may
answer, and one that was followed by another. One that was demoted, or sent back from where it served, may not until it
is promoted again. Of all others those may that could take the champion's place now: the gate let them pass, and nothing
holds them back. That counts for a small share of the traffic too, as a canary against which nothing speaks gets all of
it.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from slipway.resources import identity
from slipway.resources.mlflow.registry import CHAMPION, Registry, Version, one_writer
from slipway.resources.promotions import promotion_holds, promotion_log
from slipway.resources.promotions.promotion_log import (
    JUDGEMENT,
    NOT_EXAMINED,
    PROMOTION,
    SENT_BACK,
    Judgement,
    LostPromotion,
    Promotion,
    add,
    champion,
    champions,
    folder_of,
    history,
    is_mirrored,
    is_outdated,
    judged,
    judgement_path,
    models,
    next_number,
    withdrawals,
)
from slipway.trainer.base import atomic, codec, digest

__all__ = [
    "JUDGEMENT",
    "NOT_EXAMINED",
    "PROMOTION",
    "HeldBack",
    "Judgement",
    "LostPromotion",
    "NotAPromoter",
    "NotJudged",
    "NotPromoted",
    "Promotion",
    "Promotions",
    "add",
    "allowing",
    "champion",
    "champions",
    "history",
    "is_mirrored",
    "is_outdated",
    "judged",
    "models",
    "next_number",
]


class NotPromoted(ValueError):
    """The gate's record does not allow the promotion."""


class NotJudged(NotPromoted):
    """There is no judgement of this checkpoint against the champion of now: it is to be judged (again)."""


class NotAPromoter(NotPromoted):
    """Whoever asks may not decide which version is the champion."""


class HeldBack(NotPromoted):
    """The candidate passed, and waits for a person or for time."""


class Promotions:
    """The judgements and promotions of one registered model."""

    def __init__(self, registry: Registry, durable: Path, model: str) -> None:
        self.registry = registry
        self.durable = durable
        self.model = model

    @property
    def folder(self) -> Path:
        """The folder of the model's records."""
        return folder_of(self.durable, self.model)

    def history(self) -> list[Promotion]:
        """Every promotion, the last one being the champion's."""
        return history(self.durable, self.model)

    def champion(self) -> Promotion | None:
        """The last promotion, None before the first, wherever anybody has let MLflow's alias point."""
        return champion(self.durable, self.model)

    def champion_version(self) -> Version | None:
        """The champion as the registry has it now, which may number it anew after a restore; None before the first."""
        if (current := self.champion()) is None:
            return None
        return self.registry.find(self.model, current.manifest) or self.registry.version(
            self.model, int(current.version)
        )

    def judged(self, manifest: str) -> Judgement | None:
        """The newest judgement of a checkpoint."""
        return judged(self.durable, self.model, manifest)

    def admit(self, by: str, what: str) -> None:
        """Raises NotAPromoter for a person who may not decide about champions; its message names `what`."""
        if reason := identity.refusal(by, self.registry.promoters):
            raise NotAPromoter(f"model {self.model}: cannot {what}: {reason}")

    def approve(self, version: Version, approval: promotion_holds.Approval) -> None:
        """Record what a person said about a version. Raises NotAPromoter."""
        self.admit(approval.by, f"approve version {version.number}")
        promotion_holds.approve(self.folder, version.manifest, approval)

    def thaw(self, by: str) -> None:
        """End a freeze. Raises NotAPromoter; anybody may freeze, as that changes nothing."""
        self.admit(by, "thaw it")
        promotion_holds.thaw(self.folder)

    def record(self, judgement: Judgement) -> None:
        """Keep what the gate found, for `promote`."""
        assert judgement.model == self.model
        data = codec.encode(judgement, JUDGEMENT)
        atomic.create_only(self.folder / "evidence" / f"{digest.sha256(data)}.json", data)
        codec.replace(judgement_path(self.durable, self.model, judgement.candidate), judgement, JUDGEMENT)

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Make a version the champion, once; a version that is the champion already stays it.

        Raises NotAPromoter for a person who may not decide, NotJudged when the gate has not compared it with the
        champion of now, and NotPromoted when it has, and the candidate did not pass.
        """
        assert version.model == self.model
        self.admit(by, f"promote version {version.number}")
        with one_writer(self.durable, self.model):
            # The number first: whoever is promoted after it was read takes it, and this promotion finds that out.
            number = next_number(self.durable, self.model)
            current = self.champion()
            if current is None or current.manifest != version.manifest:
                before = current.version if current else None
                judgement = self._allowing(version, current)
                current = _promotion(version, before, by, why, judgement)
                if not add(self.durable, number, current):
                    raise NotJudged(f"model {self.model}: another version became the champion at this moment")
            self.mirror()  # also where a process died before it did
        return current

    def demote(self, by: str, why: str) -> Promotion:
        """Leave the model without a champion; one that has none stays so.

        Raises NotAPromoter, and NotPromoted when another one is first.
        """
        self.admit(by, "demote it")
        with one_writer(self.durable, self.model):
            number = next_number(self.durable, self.model)
            current = self.champion()
            if current is None:
                raise NotPromoted(f"model {self.model}: it has no champion")
            gone = Promotion(self.model, "", "", current.version, "", {}, by, why, time.time())
            if not add(self.durable, number, gone):
                raise NotPromoted(f"model {self.model}: another version became the champion at this moment")
            self.mirror()
        return gone

    def acknowledge_lost(self, by: str, why: str) -> list[int]:
        """Go on without the records of promotions that were lost for good; their numbers. Raises NotAPromoter.

        Where the newest one is among them, the model has no champion until one is promoted.
        """
        self.admit(by, "go on without the promotions that were lost")
        with one_writer(self.durable, self.model):
            return promotion_log.acknowledge(self.durable, self.model, by, why)

    def mirror(self) -> bool:
        """Let MLflow's alias follow the last promotion, also one that was made meanwhile by a process without the lock.

        False while MLflow is away: `slipway.sensors.promotions` asks again.
        """
        from mlflow.exceptions import MlflowException

        known = self.history()
        followed: int | None = None
        try:
            while known and followed != len(known):
                followed = len(known)
                if known[-1].version:
                    self.registry.point(self.model, CHAMPION, known[-1].version)
                else:
                    self.registry.unpoint(self.model, CHAMPION)
                known = self.history()
        except MlflowException:
            return False
        codec.replace(self.folder / "mirrored.json", {"promotions": len(known)})
        return True

    def _allowing(self, version: Version, current: Promotion | None) -> Judgement:
        try:
            return allowing(self.durable, version, current)
        except NotPromoted as error:
            raise type(error)(f"model {self.model}: {error}") from None


def allowing(durable: Path, version: Version, current: Promotion | None) -> Judgement:
    """The judgement that allows that `version` takes the place of `current`, the champion of now.

    Raises NotPromoted, with the reason and without the name of the model.
    """
    named = f"version {version.number}"
    judgement = judged(durable, version.model, version.manifest)
    if judgement is None:
        whose = f": materialise the candidate of {version.training}" if version.training else ""
        raise NotJudged(f"{named} was not judged{whose}")
    if judgement.model != version.model or judgement.candidate != version.manifest:
        raise NotJudged(f"{named}: the judgement on record is about another checkpoint")
    if judgement.champion != (current.manifest if current else ""):
        raise NotJudged(f"{named} was not compared with the champion of now, {champion_name(current)}")
    if judgement.undecided:
        raise NotPromoted(f"{named} waits: {judgement.undecided}")
    if not judgement.passed:
        raise NotPromoted(f"{named} did not pass {', '.join(judgement.failed)} against {champion_name(current)}")
    if reason := promotion_holds.reason(folder_of(durable, version.model), judgement, history(durable, version.model)):
        raise HeldBack(f"{named} waits: {reason}")
    return judgement


def champion_name(current: Promotion | None) -> str:
    """The champion, for a sentence."""
    return f"version {current.version}" if current else "no champion"


def send_back(durable: Path, model: str, manifest: str, evidence: Mapping[str, Any], by: str, why: str) -> bool:
    """Take the championship from a checkpoint; False where that was not to be done: another one is the champion.

    The champion before it is the champion again, or none is where there was none before. `evidence` names what was
    seen; on the same evidence nothing is sent back twice, so that a person may promote the checkpoint again. Raises
    Unavailable while another process works on the model.
    """
    with one_writer(durable, model):
        number = next_number(durable, model)
        known = history(durable, model)
        if not known or known[-1].manifest != manifest:
            return False
        if any(
            promotion_record.judgement and dict(promotion_record.judgement.figures) == dict(evidence)
            for promotion_record in known
        ):
            return False
        current = known[-1]
        before = next(
            (
                promotion_record
                for promotion_record in reversed(known)
                if promotion_record.version and promotion_record.version == current.before
            ),
            None,
        )
        back = before.manifest if before else ""
        judged = Judgement(model, back, manifest, {SENT_BACK: True}, by, figures=dict(evidence), rollback=True)
        if before is None:
            new_promotion = Promotion(model, "", "", current.version, "", {}, by, why, time.time(), judged)
        else:
            new_promotion = replace(before, before=current.version, by=by, why=why, at=time.time(), judgement=judged)
        return add(durable, number, new_promotion)


def undecided(durable: Path, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint where it could not be decided; read without MLflow.

    The checkpoint is looked for among the candidates of all models.
    """
    return next((judgement for judgement in _judgements(durable, manifest) if judgement.undecided), None)


def held_back(durable: Path, manifest: str) -> str:
    """Why a checkpoint that passed waits for a person or for time; empty for one that does not. Without MLflow."""
    for judgement in _judgements(durable, manifest):
        if judgement.passed and (
            why := promotion_holds.reason(
                durable / "models" / judgement.model, judgement, history(durable, judgement.model)
            )
        ):
            return why
    return ""


def refusal_to_answer(durable: Path, version: Version, again: bool = False) -> str:
    """Why a version may not answer; empty when it may.

    `again` is for one that has answered before: neither a freeze nor a newer champion speaks against that one. Raises
    Unreadable and UndecodableRecord: where nobody knows who the champion is, nothing new may answer.
    """
    known = history(durable, version.model)
    if (ended := withdrawals(known).get(version.manifest)) is not None:
        return (
            f"version {version.number} may not answer: it is the champion no more, by {ended.by}: {ended.why}; for it "
            f"to answer again: slipway models rollback {version.model} {version.number}"
        )
    if any(promotion_record.manifest == version.manifest for promotion_record in known):
        return ""
    try:
        allowing(durable, version, champion(durable, version.model))
    except NotPromoted as error:
        if again and isinstance(error, NotJudged | HeldBack):
            return ""
        return f"{error}, and what may not be the champion may not answer"
    return ""


def _promotion(version: Version, before: str | None, by: str, why: str, judgement: Judgement | None) -> Promotion:
    return Promotion(
        version.model,
        version.number,
        version.manifest,
        before,
        version.source,
        dict(version.tags),
        by,
        why,
        time.time(),
        judgement,
    )


def _judgements(durable: Path, manifest: str) -> list[Judgement]:
    """The newest judgements of a checkpoint as candidate of all models."""
    candidates = [judged(durable, name, manifest) for name in models(durable)]
    return [judgement for judgement in candidates if judgement is not None]
