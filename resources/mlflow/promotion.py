"""Promotion: the one operation that makes a version the champion, and the records that it needs and leaves.

    <durable>/models/<model>/judgements/<manifest>.json   what the gate found about a checkpoint; the newest judgement
                             promotions/<n>.json          the n-th promotion, create-only; the last one holds
                             promotions.journal           promotions that an earlier version recorded

Whoever promotes (an asset, a person who rolls back), `promote` reads the gate's judgement itself, refuses unless it is
about this very checkpoint and the champion of now, and compares and sets alone: one process at a time by a lock of the
model's folder, and by a numbered record that only one writer creates where a file system ignores locks. MLflow's alias
follows the last record.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resources.mlflow.registry import CHAMPION, MANIFEST_TAG, Registry, Version, one_writer
from trainer.base import codec, journal

JUDGEMENT, PROMOTION = "slipway.judgement/1", "slipway.promotion/1"


class NotPromoted(ValueError):
    """The gate's record does not allow the promotion."""


class NotJudged(NotPromoted):
    """There is no judgement of this checkpoint against the champion of now: it is to be judged (again)."""


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

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(self.checks.values()) and not self.undecided

    @property
    def failed(self) -> list[str]:
        """The checks that were not passed."""
        return [name for name, passed in self.checks.items() if not passed]


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

    def history(self) -> list[Promotion]:
        """Every promotion, the last one being the champion's."""
        return history(self.durable, self.model)

    def champion(self) -> Promotion | None:
        """The last promotion, None before the first. Where only MLflow's alias names a champion, that one."""
        if known := self.history():
            return known[-1]
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

    def record(self, judgement: Judgement) -> None:
        """Keep what the gate found, for `promote`."""
        assert judgement.model == self.model
        codec.replace(_judgement_path(self.durable, self.model, judgement.candidate), judgement, JUDGEMENT)

    def promote(self, version: Version, by: str, why: str) -> Promotion:
        """Make a version the champion, once; a version that is the champion already stays it.

        Raises NotJudged when the gate has not compared it with the champion of now, and NotPromoted when it has, and
        the candidate did not pass.
        """
        assert version.model == self.model
        with one_writer(self.durable, self.model):
            # The number first: whoever is promoted after it was read takes it, and this promotion finds that out.
            number, held = len(_numbered(self.durable, self.model)) + 1, self.champion()
            if held is None or held.manifest != version.manifest:
                before, judgement = held.version if held else None, self._allowing(version, held)
                held = _promotion(version, before, by, why, judgement)
                if not codec.create_only(_path(self.durable, self.model, number), held, PROMOTION):
                    raise NotJudged(f"model {self.model}: another version became the champion at this moment")
            self._point(held)  # also where a process died before it did
        return held

    def _point(self, held: Promotion) -> None:
        """Let the alias follow the last promotion, also when a process that ignored the lock made it meanwhile."""
        pointed: Promotion | None = None
        while held != pointed:
            self.registry.point(self.model, CHAMPION, held.version)
            pointed, held = held, (self.history() or [held])[-1]

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
        return judgement


def judged(durable: Path, model: str, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint; read without MLflow. Raises UndecodableRecord for a damaged record."""
    return codec.read_if_there(_judgement_path(durable, model, manifest), Judgement, JUDGEMENT)


def history(durable: Path, model: str) -> list[Promotion]:
    """Every promotion of a model, the last one being the champion's; read without MLflow.

    Raises UndecodableRecord for a damaged record: without it, nobody knows who the champion is.
    """
    earlier = [_of_journal(event) for event in journal.read(_folder(durable, model) / "promotions.journal").events]
    return [*earlier, *_numbered(durable, model)]


def undecided(durable: Path, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint where it could not be decided; read without MLflow.

    The checkpoint is looked for among the candidates of all models.
    """
    folder = durable / "models"
    found = [judged(durable, path.name, manifest) for path in sorted(folder.iterdir())] if folder.exists() else []
    return next((judgement for judgement in found if judgement and judgement.undecided), None)


def is_outdated(durable: Path, judgement: Judgement) -> bool:
    """Whether another version has become the champion since."""
    return [each.manifest for each in history(durable, judgement.model)[-1:]] != [judgement.champion]


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
    tags = event["tags"]
    before, run = event["before"], event["evidence"].get("run", "")
    return Promotion(
        event["model"],
        event["version"],
        tags.get(MANIFEST_TAG, ""),
        before,
        event["source"],
        tags,
        f"run {run}",
        "",
        event["t"],
    )


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
