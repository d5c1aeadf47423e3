"""Promotion: the one operation that makes a version the champion, and the records that it needs and leaves.

    <durable>/models/<model>/judgements/<manifest>.json   what the gate found about a checkpoint; the newest judgement
                             evidence/<sha256>.json       every judgement ever made, immutable, named by its bytes
                             promotions/<n>.json          the n-th promotion, create-only; the last one holds
                             promotions.journal           promotions that an earlier version recorded
                             mirrored.json                the last promotion that MLflow's alias follows

Whoever promotes (an asset, a person who rolls back), `promote` reads the gate's judgement itself, refuses unless it is
about this very checkpoint and the champion of now, and compares and sets alone: one process at a time by a lock of the
model's folder, and by a numbered record that only one writer creates where a file system ignores locks. MLflow's alias
follows the last record: at once, or when MLflow is back (`sensors.promotions`). A freeze, an approval that is
missing and a cool-down hold a promotion back (`resources.mlflow.holding`), but no rollback.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resources.mlflow import holding, identity
from resources.mlflow.registry import CHAMPION, MANIFEST_TAG, Registry, Version, one_writer
from trainer.base import atomic, codec, digest, journal, listing

JUDGEMENT, PROMOTION = "slipway.judgement/1", "slipway.promotion/1"


class NotPromoted(ValueError):
    """The gate's record does not allow the promotion."""


class NotJudged(NotPromoted):
    """There is no judgement of this checkpoint against the champion of now: it is to be judged (again)."""


class NotAPromoter(NotPromoted):
    """Whoever asks may not decide which version is the champion."""


class HeldBack(NotPromoted):
    """The candidate passed, and waits for a person or for time."""


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
        made: Mapping[str, Mapping[str, Any]] = self.figures.get("checks", {})
        left = {name for name, found in made.items() if str(found.get("note", "")).startswith(NOT_EXAMINED)}
        return [name for name, passed in self.checks.items() if not passed and name not in left]


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
    """The record that allowed it; None for a promotion of an earlier version of Slipway."""


class Promotions:
    """The judgements and promotions of one registered model."""

    def __init__(self, registry: Registry, durable: Path, model: str) -> None:
        self.registry, self.durable, self.model = registry, durable, model

    @property
    def folder(self) -> Path:
        """The folder of the model's records."""
        return _folder(self.durable, self.model)

    def history(self) -> list[Promotion]:
        """Every promotion, the last one being the champion's."""
        return history(self.durable, self.model)

    def champion(self) -> Promotion | None:
        """The last promotion, None before the first. Where only MLflow's alias names a champion, that one."""
        if self.history():
            return champion(self.durable, self.model)
        held = self.registry.aliased(self.model, CHAMPION)
        return _promotion(held, None, "the registry", "the alias in MLflow") if held else None

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
        atomic.create_only(_folder(self.durable, self.model) / "evidence" / f"{digest.sha256(data)}.json", data)
        codec.replace(_judgement_path(self.durable, self.model, judgement.candidate), judgement, JUDGEMENT)

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

    def mirror(self) -> bool:
        """Let MLflow's alias follow the last promotion, also one that was made meanwhile by a process without the lock.

        False while MLflow is away: `sensors.promotions` asks again.
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
        codec.replace(_folder(self.durable, self.model) / "mirrored.json", {"promotions": len(known)})
        return True

    def _allowing(self, version: Version, held: Promotion | None) -> Judgement:
        """The judgement that allows the promotion of `version` in place of `held`. Raises NotPromoted."""
        named = f"model {self.model}: version {version.number}"
        judgement = self.judged(version.manifest)
        if judgement is None:
            raise NotJudged(f"{named} was not judged: materialise the candidate of {version.training}")
        if judgement.model != self.model or judgement.candidate != version.manifest:
            raise NotJudged(f"{named}: the judgement on record is about another checkpoint")
        if judgement.champion != (held.manifest if held else ""):
            raise NotJudged(f"{named} was not compared with the champion of now, {champion_name(held)}")
        if judgement.undecided:
            raise NotPromoted(f"{named} waits: {judgement.undecided}")
        if not judgement.passed:
            raise NotPromoted(f"{named} did not pass {', '.join(judgement.failed)} against {champion_name(held)}")
        if reason := holding.reason(_folder(self.durable, self.model), judgement, self.history()):
            raise HeldBack(f"{named} waits: {reason}")
        return judgement


def champion(durable: Path, model: str) -> Promotion | None:
    """The champion of a model: the last promotion. None before the first one, and when it was demoted.

    Read without MLflow, whose alias may lag behind. Raises UndecodableRecord for a damaged record.
    """
    known = history(durable, model)
    return known[-1] if known and known[-1].version else None


def champions(durable: Path, model: str) -> list[Promotion]:
    """The promotions of the two checkpoints promoted last: the champion, and the one that a rollback brings back.

    Raises UndecodableRecord for a damaged record.
    """
    newest: dict[str, Promotion] = {}
    for made in reversed(history(durable, model)):
        if made.manifest:
            newest.setdefault(made.manifest, made)
    return list(newest.values())[:2]


def models(durable: Path) -> list[str]:
    """The models that have records here, by name."""
    return [name for name in listing.names_if_there(durable / "models") if listing.is_folder(durable / "models" / name)]


def is_mirrored(durable: Path, model: str) -> bool:
    """Whether MLflow's alias follows the last promotion, as far as we had it follow."""
    mirrored = codec.read_if_whole(_folder(durable, model) / "mirrored.json", dict[str, int])
    return (mirrored or {}).get("promotions", 0) == len(history(durable, model))


def judged(durable: Path, model: str, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint; read without MLflow. Raises UndecodableRecord for a damaged record."""
    return codec.read_if_there(_judgement_path(durable, model, manifest), Judgement, JUDGEMENT)


def history(durable: Path, model: str) -> list[Promotion]:
    """Every promotion of a model, the last one being the champion's; read without MLflow.

    Raises UndecodableRecord for a damaged record: without it, nobody knows who the champion is.
    """
    earlier = [_of_journal(event) for event in journal.read(_folder(durable, model) / "promotions.journal").events]
    return [*earlier, *_numbered(durable, model)]


def next_number(durable: Path, model: str) -> int:
    """The number of the promotion that comes next; read before what is decided, as `add` compares with it."""
    return len(_numbered(durable, model)) + 1


def add(durable: Path, number: int, made: Promotion) -> bool:
    """Add a promotion to its model's log under this number; False where another one has it. Raises OSError."""
    return codec.create_only(_path(durable, made.model, number), made, PROMOTION)


def is_outdated(durable: Path, judgement: Judgement) -> bool:
    """Whether another version has become the champion since."""
    held = champion(durable, judgement.model)
    return (held.manifest if held else "") != judgement.champion


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


def _of_journal(event: journal.JournalEvent) -> Promotion:
    """A promotion as an earlier version recorded it."""
    tags, by = event["tags"], f"run {event['evidence'].get('run', '')}"
    which = event["model"], event["version"], tags.get(MANIFEST_TAG, "")
    return Promotion(*which, event["before"], event["source"], tags, by, "", event["t"])


def _numbered(durable: Path, model: str) -> list[Promotion]:
    known: list[Promotion] = []
    while (found := codec.read_if_there(_path(durable, model, len(known) + 1), Promotion, PROMOTION)) is not None:
        known.append(found)
    return known


def _folder(durable: Path, model: str) -> Path:
    return durable / "models" / model


def _judgement_path(durable: Path, model: str, manifest: str) -> Path:
    return _folder(durable, model) / "judgements" / f"{manifest}.json"


def _path(durable: Path, model: str, number: int) -> Path:
    return _folder(durable, model) / "promotions" / f"{number:06d}.json"
