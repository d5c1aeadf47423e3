"""Promotion: the one operation that makes a version the champion, and the records that it needs and leaves.

    <durable>/models/<model>/judgements/<manifest>.json   what the gate found about a checkpoint; the newest judgement
                             evidence/<sha256>.json       every judgement ever made, immutable, named by its bytes
                             promotions/<n>.json          the n-th promotion (`slipway.resources.mlflow.promotion_log`)

Whoever promotes (an asset, a person who rolls back), `promote` reads the gate's judgement itself, refuses unless it is
about this very checkpoint and the champion of now, and compares and sets alone: one process at a time by a lock of the
model's folder, and by a numbered record that only one writer creates where a file system ignores locks. MLflow's alias
follows the last record: at once, or when MLflow is back (`slipway.sensors.promotions`). A freeze, an approval that is
missing and a cool-down hold a promotion back (`slipway.resources.mlflow.holding`), but no rollback.
"""

import time
from pathlib import Path

from slipway.resources.mlflow import holding, identity, promotion_log
from slipway.resources.mlflow.promotion_log import (
    JUDGEMENT,
    NOT_EXAMINED,
    PROMOTION,
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
)
from slipway.resources.mlflow.registry import CHAMPION, Registry, Version, one_writer
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
        self.registry, self.durable, self.model = registry, durable, model

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
        if (held := self.champion()) is None:
            return None
        return self.registry.find(self.model, held.manifest) or self.registry.version(self.model, int(held.version))

    def judged(self, manifest: str) -> Judgement | None:
        """The newest judgement of a checkpoint."""
        return judged(self.durable, self.model, manifest)

    def admit(self, by: str, what: str) -> None:
        """Raises NotAPromoter for a person who may not decide about champions; its message names `what`."""
        if reason := identity.refusal(by, self.registry.promoters):
            raise NotAPromoter(f"model {self.model}: cannot {what}: {reason}")

    def approve(self, version: Version, said: holding.Approval) -> None:
        """Record what a person said about a version. Raises NotAPromoter."""
        self.admit(said.by, f"approve version {version.number}")
        holding.approve(self.folder, version.manifest, said)

    def thaw(self, by: str) -> None:
        """End a freeze. Raises NotAPromoter; anybody may freeze, as that changes nothing."""
        self.admit(by, "thaw it")
        holding.thaw(self.folder)

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
            number, held = next_number(self.durable, self.model), self.champion()
            if held is None or held.manifest != version.manifest:
                before, judgement = held.version if held else None, self._allowing(version, held)
                held = _promotion(version, before, by, why, judgement)
                if not add(self.durable, number, held):
                    raise NotJudged(f"model {self.model}: another version became the champion at this moment")
            self.mirror()  # also where a process died before it did
        return held

    def demote(self, by: str, why: str) -> Promotion:
        """Leave the model without a champion; one that has none stays so.

        Raises NotAPromoter, and NotPromoted when another one is first.
        """
        self.admit(by, "demote it")
        with one_writer(self.durable, self.model):
            number, held = next_number(self.durable, self.model), self.champion()
            if held is None:
                raise NotPromoted(f"model {self.model}: it has no champion")
            gone = Promotion(self.model, "", "", held.version, "", {}, by, why, time.time())
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

    def _allowing(self, version: Version, held: Promotion | None) -> Judgement:
        try:
            return allowing(self.durable, version, held)
        except NotPromoted as error:
            raise type(error)(f"model {self.model}: {error}") from None


def allowing(durable: Path, version: Version, held: Promotion | None) -> Judgement:
    """The judgement that allows that `version` takes the place of `held`, the champion of now.

    Raises NotPromoted, with the reason and without the name of the model.
    """
    named, judgement = f"version {version.number}", judged(durable, version.model, version.manifest)
    if judgement is None:
        whose = f": materialise the candidate of {version.training}" if version.training else ""
        raise NotJudged(f"{named} was not judged{whose}")
    if judgement.model != version.model or judgement.candidate != version.manifest:
        raise NotJudged(f"{named}: the judgement on record is about another checkpoint")
    if judgement.champion != (held.manifest if held else ""):
        raise NotJudged(f"{named} was not compared with the champion of now, {champion_name(held)}")
    if judgement.undecided:
        raise NotPromoted(f"{named} waits: {judgement.undecided}")
    if not judgement.passed:
        raise NotPromoted(f"{named} did not pass {', '.join(judgement.failed)} against {champion_name(held)}")
    if reason := holding.reason(folder_of(durable, version.model), judgement, history(durable, version.model)):
        raise HeldBack(f"{named} waits: {reason}")
    return judgement


def champion_name(held: Promotion | None) -> str:
    """The champion, for a sentence."""
    return f"version {held.version}" if held else "no champion"


def _promotion(
    version: Version, before: str | None, by: str, why: str, judgement: Judgement | None = None
) -> Promotion:
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
