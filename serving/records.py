"""Records of which version should serve a model, and of the verdicts: numbered, create-only files on the durable tier.

    <durable>/serving/<model>/wanted/<n>.json     the n-th wish: a version and its share of the traffic
                              verdicts/<n>.json   its verdict: all of the traffic, or back to the old version
                              models/<manifest>/  exported models, by the manifest of the checkpoint
                              answering.json      the front's last report: the versions that answer, and the URL
    <durable>/serving/front.json                  the front's URL and process

A wish without a verdict is a switch in progress. The records alone decide which versions answer, so a front that is
killed at any moment restarts with the right ones.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slipway.trainer.base import codec, listing
from slipway.trainer.record import numbered

DESIRED = "slipway.serving.wanted/1"
VERDICT = "slipway.serving.verdict/1"
ANSWERING = "slipway.serving.answering/1"
FRONT = "slipway.serving.front/1"
SERVING = "serving"
"""The folder of all records on the durable tier."""


@dataclass(frozen=True)
class ServedVersion:
    """A registered version, with the export to load."""

    number: str
    """The version number in the registry."""
    checkpoint: str
    """The SHA-256 of the checkpoint's manifest."""
    folder: str
    """The folder of the export, relative to the durable tier."""
    manifest: str
    """The SHA-256 of the export's manifest. A worker loads only an export with this manifest."""

    def named(self, model: str) -> str:
        """The name of the version in answers."""
        return f"{model}@{self.number}"

    def fingerprint(self, model: str) -> str:
        """The `system_fingerprint` of answers: the name and the beginning of the checkpoint's hash."""
        return f"{model}@{self.number}-{self.checkpoint[:12]}"


@dataclass(frozen=True)
class SwitchPolicy:
    """The conditions for a new version to get all of the traffic."""

    share: float = 1.0
    """The new version's share of new requests until the verdict; 1 gives it all of them as soon as it is ready."""
    least_requests: int = 20
    """The fewest answers of a new version before it gets all of the traffic."""
    patience_seconds: float = 600.0
    """Seconds after its first request: then a new version without any answer is rolled back, and one with enough
    answers waits no longer for texts on which to compare both versions."""
    error_margin: float = 0.01
    """The largest increase of the share of failed requests."""
    latency_ratio: float = 1.5
    """The largest factor by which its first token, and each further token, may take longer."""
    quality_margin: float = 0.02
    """How much worse it may predict people's texts, in bits per byte."""


@dataclass(frozen=True)
class ServingWish:
    """A request to serve a version of a model, or to stop."""

    want: Literal["serve", "stop"]
    by: str
    why: str
    version: ServedVersion | None = None
    """None to stop."""
    before: ServedVersion | None = None
    """The version that answers until the verdict; None if there was none."""
    follows: bool = False
    """Whether to serve later champions too, even after a stop that a demotion caused."""
    policy: SwitchPolicy = field(default_factory=SwitchPolicy)
    at: float = field(default_factory=time.time)
    """Seconds since the epoch, for display only."""


@dataclass(frozen=True)
class SwitchVerdict:
    """The result of a wish."""

    outcome: Literal["all", "back"]
    """all: the new version gets all of the traffic; back: the old version does."""
    why: str
    figures: Mapping[str, float] = field(default_factory=dict)
    at: float = field(default_factory=time.time)


@dataclass(frozen=True)
class Share:
    """A version that answers, and its share of new requests."""

    version: ServedVersion
    share: float
    ready: bool
    note: str = ""
    """The reason why the version is not ready, or why a new version has no verdict yet."""


@dataclass(frozen=True)
class Answering:
    """The front's report of the versions that answer for a model now."""

    wish: int
    """The number of the wish that the front follows."""
    shares: tuple[Share, ...]
    url: str
    problem: str = ""
    """The reason why no version answers although one should."""


@dataclass(frozen=True)
class FrontPlace:
    """The front's URL and process."""

    url: str
    pid: int
    host: str


@dataclass(frozen=True)
class ServedState:
    """A model's newest wish and its verdict, if it has one."""

    model: str
    number: int
    """The number of the wish; 0 before the first."""
    desired: ServingWish | None
    verdict: SwitchVerdict | None

    @property
    def settled(self) -> ServedVersion | None:
        """The version that has all of the traffic, or had it before the switch in progress; None if there is none."""
        if self.desired is None or self.desired.want == "stop":
            return None
        if self.verdict is not None and self.verdict.outcome == "all":
            return self.desired.version
        return self.desired.before

    @property
    def coming(self) -> ServedVersion | None:
        """The new version of the switch in progress."""
        if self.desired is not None and self.verdict is None:
            return self.desired.version
        return None


class ServingRecords:
    """The records of one durable tier."""

    def __init__(self, durable: Path) -> None:
        self.durable = durable
        self.folder = durable / SERVING

    def models(self) -> list[str]:
        """The models with a record. Raises OSError if they cannot be listed."""
        return [name for name in listing.names_if_there(self.folder) if (self.folder / name / "wanted").is_dir()]

    def state(self, model: str) -> ServedState:
        """The newest wish of a model. Raises UndecodableRecord, and OSError, which includes a lost wish."""
        number = self._newest(model)
        if number == 0:
            return ServedState(model, 0, None, None)
        desired = numbered.read(self._wishes(model), number, ServingWish, DESIRED)
        verdict = codec.read_if_there(self._verdict(model, number), SwitchVerdict, VERDICT)
        return ServedState(model, number, desired, verdict)

    def wish(self, state: ServedState, desired: ServingWish) -> bool:
        """Record a new wish after `state`; False if another wish was recorded meanwhile."""
        return numbered.add(self._wishes(state.model), state.number + 1, desired, DESIRED)

    def judge(self, state: ServedState, verdict: SwitchVerdict) -> bool:
        """Record the verdict on the newest wish; False if it has one already."""
        return codec.create_only(self._verdict(state.model, state.number), verdict, VERDICT)

    def history(self, model: str) -> list[tuple[ServingWish, SwitchVerdict | None]]:
        """All wishes and their verdicts, the oldest first. Raises Unreadable, which includes a lost record."""
        return [
            (
                numbered.read(self._wishes(model), number, ServingWish, DESIRED),
                codec.read_if_there(self._verdict(model, number), SwitchVerdict, VERDICT),
            )
            for number in numbered.numbers(self._wishes(model), self._newest(model))
        ]

    def answering(self, model: str) -> Answering | None:
        """The front's last report on a model."""
        return codec.read_if_whole(self.folder / model / "answering.json", Answering, ANSWERING)

    def say(self, model: str, answering: Answering) -> None:
        """Write the front's report on a model."""
        codec.replace(self.folder / model / "answering.json", answering, ANSWERING)

    def front(self) -> FrontPlace | None:
        """The front's place when it last started."""
        return codec.read_if_whole(self.folder / "front.json", FrontPlace, FRONT)

    def keep_front(self, front: FrontPlace) -> None:
        """Write the front's place."""
        codec.replace(self.folder / "front.json", front, FRONT)

    def exports(self, model: str) -> Path:
        return self.folder / model / "models"

    def export(self, model: str, checkpoint: str) -> Path:
        """The folder for the export of a checkpoint, whether it exists or not."""
        return self.exports(model) / checkpoint

    def _newest(self, model: str) -> int:
        """The number of the newest wish. A verdict without its wish proves that a wish was lost. Raises Unreadable."""
        return max(numbered.newest(self._wishes(model)), numbered.newest(self._verdicts(model)))

    def _wishes(self, model: str) -> Path:
        return self.folder / model / "wanted"

    def _verdicts(self, model: str) -> Path:
        return self.folder / model / "verdicts"

    def _verdict(self, model: str, number: int) -> Path:
        return numbered.path(self._verdicts(model), number)


def service_name(model: str, version: ServedVersion) -> str:
    """The name of a version's Kubernetes objects, at most 63 characters long, as a Service's name must be."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in model.lower())
    return f"serve-{plain[:40].strip('-')}-{version.checkpoint[:12]}"
