"""Promotion: the only operation that makes a version the champion, and its records.

    <durable>/models/<model>/judgements/<manifest>.json   the gate's newest judgement of a checkpoint
                             evidence/<sha256>.json       every judgement ever made, immutable, named by its hash
                             promotions/<n>.json          the n-th promotion (`promotion_log`)

Whoever promotes (an asset, or a person who rolls back), `promote` itself reads the gate's judgement. It rejects the
promotion unless the judgement is about this checkpoint and the current champion. It works as a compare-and-set: a lock
on the model's folder admits one process at a time and, if a file system ignores locks, only one writer can create the
next numbered record. MLflow's alias follows the last record, at once or when MLflow is back
(`slipway.sensors.promotions`). A freeze, a missing approval and a cool-down hold back a promotion

(`slipway.resources.promotions.promotion_holds`), but never a rollback.
`send_back` ends the championship of a version that failed in serving; it only writes to the log of promotions.
`undecided` and `held_back` say why a judged candidate is not the champion yet, and `refusal_to_answer` says which
versions may serve; they work without MLflow. The champion and former champions may serve. A version that was demoted or
sent back may not serve until it is promoted again. Any other version may serve only if it could become the champion
now: it has passed the gate, and nothing holds it back. This also applies to a small share of the traffic, since a
successful canary gets all of it.
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
    """There is no judgement of this checkpoint against the current champion; it must be judged (again)."""


class NotAPromoter(NotPromoted):
    """The actor may not decide which version is the champion."""


class HeldBack(NotPromoted):
    """The candidate has passed, but waits for a person or for a cool-down."""


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
        """All promotions in order; the last one is that of the champion."""
        return history(self.durable, self.model)

    def champion(self) -> Promotion | None:
        """The last promotion, regardless of MLflow's alias; None before the first."""
        return champion(self.durable, self.model)

    def champion_version(self) -> Version | None:
        """The champion's version in the registry, or None. After a restore, it may have another number."""
        current = self.champion()
        if current is None:
            return None
        return self.registry.find(self.model, current.manifest) or self.registry.version(
            self.model, int(current.version)
        )

    def judged(self, manifest: str) -> Judgement | None:
        """The newest judgement of a checkpoint."""
        return judged(self.durable, self.model, manifest)

    def admit(self, by: str, what: str) -> None:
        """Raises NotAPromoter if the actor may not decide about champions; its message names the action `what`."""
        reason = identity.refusal(by, self.registry.promoters)
        if reason:
            raise NotAPromoter(f"model {self.model}: cannot {what}: {reason}")

    def approve(self, version: Version, approval: promotion_holds.Approval) -> None:
        """Record a person's approval or rejection of a version. Raises NotAPromoter."""
        self.admit(approval.by, f"approve version {version.number}")
        promotion_holds.approve(self.folder, version.manifest, approval)

    def thaw(self, by: str) -> None:
        """End a freeze. Raises NotAPromoter. Anybody may freeze, since that changes nothing."""
        self.admit(by, "thaw it")
        promotion_holds.thaw(self.folder)

    def record(self, judgement: Judgement) -> None:
        """Store a judgement of the gate for `promote`."""
        assert judgement.model == self.model
        data = codec.encode(judgement, JUDGEMENT)
        atomic.create_only(self.folder / "evidence" / f"{digest.sha256(data)}.json", data)
        codec.replace(judgement_path(self.durable, self.model, judgement.candidate), judgement, JUDGEMENT)

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Make a version the champion. Idempotent.

        Raises NotAPromoter if the actor may not decide, NotJudged if the gate has not compared the version with the
        current champion, and NotPromoted if the version did not pass.
        """
        assert version.model == self.model
        self.admit(by, f"promote version {version.number}")
        with one_writer(self.durable, self.model):
            # Read the number first: if another promotion takes it meanwhile, `add` fails.
            number = next_number(self.durable, self.model)
            current = self.champion()
            if current is None or current.manifest != version.manifest:
                before = current.version if current else None
                judgement = self._allowing(version, current)
                current = _promotion(version, before, by, why, judgement)
                if not add(self.durable, number, current):
                    raise NotJudged(f"model {self.model}: another version became the champion at the same time")
            self.mirror()  # even if nothing was added, since an earlier process may have died before this call
        return current

    def demote(self, by: str, why: str) -> Promotion:
        """Demote the champion, so that the model has none.

        Raises NotAPromoter, and NotPromoted if there is no champion or another promotion was faster.
        """
        self.admit(by, "demote it")
        with one_writer(self.durable, self.model):
            number = next_number(self.durable, self.model)
            current = self.champion()
            if current is None:
                raise NotPromoted(f"model {self.model}: it has no champion")
            gone = Promotion(self.model, "", "", current.version, "", {}, by, why, time.time())
            if not add(self.durable, number, gone):
                raise NotPromoted(f"model {self.model}: another version became the champion at the same time")
            self.mirror()
        return gone

    def acknowledge_lost(self, by: str, why: str) -> list[int]:
        """Acknowledge that records of promotions are lost for good; returns their numbers. Raises NotAPromoter.

        If the newest record is lost, the model has no champion until one is promoted.
        """
        self.admit(by, "go on without the promotions that were lost")
        with one_writer(self.durable, self.model):
            return promotion_log.acknowledge(self.durable, self.model, by, why)

    def mirror(self) -> bool:
        """Update MLflow's alias to the last promotion, even one that another process without the lock makes meanwhile.

        Returns False if MLflow is away; `slipway.sensors.promotions` tries again.
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
    """The judgement that allows `version` to replace `current`, the current champion.

    Raises NotPromoted with the reason, without the name of the model.
    """
    named = f"version {version.number}"
    judgement = judged(durable, version.model, version.manifest)
    if judgement is None:
        whose = f": materialise the candidate of {version.training}" if version.training else ""
        raise NotJudged(f"{named} was not judged{whose}")
    if judgement.model != version.model or judgement.candidate != version.manifest:
        raise NotJudged(f"{named}: the recorded judgement is about another checkpoint")
    if judgement.champion != (current.manifest if current else ""):
        raise NotJudged(f"{named} was not compared with the current champion, {champion_name(current)}")
    if judgement.undecided:
        raise NotPromoted(f"{named} waits: {judgement.undecided}")
    if not judgement.passed:
        raise NotPromoted(f"{named} did not pass {', '.join(judgement.failed)} against {champion_name(current)}")
    reason = promotion_holds.reason(folder_of(durable, version.model), judgement, history(durable, version.model))
    if reason:
        raise HeldBack(f"{named} waits: {reason}")
    return judgement


def champion_name(current: Promotion | None) -> str:
    """The champion, in words."""
    return f"version {current.version}" if current else "no champion"


def send_back(durable: Path, model: str, manifest: str, evidence: Mapping[str, Any], by: str, why: str) -> bool:
    """End the championship of a checkpoint, because of `evidence` from serving. Returns False if it is no champion.

    The former champion becomes the champion again, if there was one. The same evidence never counts twice, so that a
    person may promote the checkpoint again. Raises Unavailable while another process changes the model.
    """
    with one_writer(durable, model):
        number = next_number(durable, model)
        known = history(durable, model)
        if not known or known[-1].manifest != manifest:
            return False
        judgements = [promotion.judgement for promotion in known if promotion.judgement]
        if any(dict(judgement.figures) == dict(evidence) for judgement in judgements):
            return False
        current = known[-1]
        former = [promotion for promotion in known if promotion.version and promotion.version == current.before]
        before = former[-1] if former else None
        back = before.manifest if before else ""
        judged = Judgement(model, back, manifest, {SENT_BACK: True}, by, figures=dict(evidence), rollback=True)
        if before is None:
            new_promotion = Promotion(model, "", "", current.version, "", {}, by, why, time.time(), judged)
        else:
            new_promotion = replace(before, before=current.version, by=by, why=why, at=time.time(), judgement=judged)
        return add(durable, number, new_promotion)


def undecided(durable: Path, manifest: str) -> Judgement | None:
    """The newest undecided judgement of a checkpoint as a candidate of any model, or None. Works without MLflow."""
    return next((judgement for judgement in _judgements(durable, manifest) if judgement.undecided), None)


def held_back(durable: Path, manifest: str) -> str:
    """Why a checkpoint that passed waits for a person or for a cool-down, or "". Works without MLflow."""
    for judgement in _judgements(durable, manifest):
        if judgement.passed:
            folder = folder_of(durable, judgement.model)
            reason = promotion_holds.reason(folder, judgement, history(durable, judgement.model))
            if reason:
                return reason
    return ""


def refusal_to_answer(durable: Path, version: Version, again: bool = False) -> str:
    """Why a version may not serve; "" if it may.

    again: whether the version has served before, so that a freeze or a newer champion is no obstacle. Raises Unreadable
    and UndecodableRecord, since nothing new may serve while the champion is unknown.
    """
    known = history(durable, version.model)
    ended = withdrawals(known).get(version.manifest)
    if ended is not None:
        return (
            f"version {version.number} may not answer: {ended.by} ended its championship: {ended.why}; to let it "
            f"answer again: slipway models rollback {version.model} {version.number}"
        )
    if any(promotion_record.manifest == version.manifest for promotion_record in known):
        return ""
    try:
        allowing(durable, version, champion(durable, version.model))
    except NotPromoted as error:
        if again and isinstance(error, NotJudged | HeldBack):
            return ""
        return f"{error}, and only a version that may be the champion may answer"
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
    """The newest judgements of a checkpoint as a candidate of any model."""
    candidates = [judged(durable, name, manifest) for name in models(durable)]
    return [judgement for judgement in candidates if judgement is not None]
