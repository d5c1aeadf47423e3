"""Records of what should answer for a model, and of what came of it: on the durable tier, create-only, in their order.

    <durable>/serving/<model>/wanted/<n>.json     the n-th wish: which version, for how much of the traffic
                              verdicts/<n>.json   what came of it: all of the traffic, or back to the version before
                              models/<manifest>/  exported models, by the manifest of the checkpoint
                              answering.json      what the front last said: who answers, where
    <durable>/serving/front.json                  where the front is

A wish without a verdict is a switch under way. Whoever reads the records knows what should answer, so a front that is
killed at any moment comes back with the right versions.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slipway.trainer.base import codec, listing
from slipway.trainer.record import numbered

DESIRED, VERDICT, ANSWERING, FRONT = (
    "slipway.serving.wanted/1",
    "slipway.serving.verdict/1",
    "slipway.serving.answering/1",
    "slipway.serving.front/1",
)
SERVING = "serving"
"""On the durable tier, the folder of all records."""


@dataclass(frozen=True)
class ServedVersion:
    """A registered version as it is loaded."""

    number: str
    """Its number in the registry."""
    checkpoint: str
    """The SHA-256 of its checkpoint's manifest."""
    folder: str
    """Where its export is, relative to the durable tier."""
    manifest: str
    """The SHA-256 of the export's manifest: nothing else is loaded."""

    def named(self, model: str) -> str:
        """How answers name it."""
        return f"{model}@{self.number}"

    def fingerprint(self, model: str) -> str:
        """The same with the beginning of its checkpoint's hash: `system_fingerprint`."""
        return f"{model}@{self.number}-{self.checkpoint[:12]}"


@dataclass(frozen=True)
class SwitchPolicy:
    """When a new version may have all of the traffic. The numbers are those of one canary."""

    share: float = 1.0
    """Of new requests, until the verdict; 1 for all of them as soon as it is ready."""
    least_requests: int = 20
    """A new version answers so many before it may have all of the traffic: until then it waits."""
    patience_seconds: float = 600.0
    """From its first request on: after so long a new version without one answer goes back, and one with enough of them
    waits no longer for texts that both versions can be compared on."""
    error_margin: float = 0.01
    """How much larger its share of failed requests may be."""
    latency_ratio: float = 1.5
    """How many times longer its first token and each further one may take."""
    quality_margin: float = 0.02
    """How many bits per byte worse it may predict what people write."""


@dataclass(frozen=True)
class ServingWish:
    """What should answer."""

    want: Literal["serve", "stop"]
    by: str
    why: str
    version: ServedVersion | None = None
    """None to stop."""
    before: ServedVersion | None = None
    """What answers until the verdict; None where nothing did."""
    follows: bool = False
    """Whether the champion of later is to be served, too; after a stop as well, which a demotion has caused."""
    policy: SwitchPolicy = field(default_factory=SwitchPolicy)
    at: float = field(default_factory=time.time)
    """Seconds since the epoch, for people."""


@dataclass(frozen=True)
class SwitchVerdict:
    """What came of a wish."""

    outcome: Literal["all", "back"]
    """all: its version has all of the traffic; back: the one before has."""
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
    """Why it is not ready; of a new version that is, what its verdict waits for."""


@dataclass(frozen=True)
class Answering:
    """What answers for a model now, as the front says."""

    wish: int
    """The wish that it follows."""
    shares: tuple[Share, ...]
    url: str
    problem: str = ""
    """Why nothing answers though something should."""


@dataclass(frozen=True)
class FrontPlace:
    """Where the front is, and which process it is."""

    url: str
    pid: int
    host: str


@dataclass(frozen=True)
class ServedState:
    """A model's newest wish, and what has come of it."""

    model: str
    number: int
    """Of the wish; 0 before the first."""
    desired: ServingWish | None
    verdict: SwitchVerdict | None

    @property
    def settled(self) -> ServedVersion | None:
        """What all of the traffic goes to, or went to before a switch that is under way; None for nothing."""
        if self.desired is None or self.desired.want == "stop":
            return None
        if self.verdict is not None and self.verdict.outcome == "all":
            return self.desired.version
        return self.desired.before

    @property
    def coming(self) -> ServedVersion | None:
        """The version whose switch is under way."""
        return self.desired.version if self.desired is not None and self.verdict is None else None


class ServingRecords:
    """The records of one durable tier."""

    def __init__(self, durable: Path) -> None:
        self.durable, self.folder = durable, durable / SERVING

    def models(self) -> list[str]:
        """The models of which anything was ever wanted. Raises OSError where that cannot be listed."""
        return [name for name in listing.names_if_there(self.folder) if (self.folder / name / "wanted").is_dir()]

    def state(self, model: str) -> ServedState:
        """The newest wish of a model. Raises UndecodableRecord, and OSError, also where that wish was lost."""
        number = self._newest(model)
        if number == 0:
            return ServedState(model, 0, None, None)
        desired = numbered.read(self._wishes(model), number, ServingWish, DESIRED)
        verdict = codec.read_if_there(self._verdict(model, number), SwitchVerdict, VERDICT)
        return ServedState(model, number, desired, verdict)

    def wish(self, state: ServedState, desired: ServingWish) -> bool:
        """Record what is wanted after `state`; False when somebody has wished for something else meanwhile."""
        return numbered.add(self._wishes(state.model), state.number + 1, desired, DESIRED)

    def judge(self, state: ServedState, verdict: SwitchVerdict) -> bool:
        """Record what came of the newest wish; False when that is known already."""
        return codec.create_only(self._verdict(state.model, state.number), verdict, VERDICT)

    def history(self, model: str) -> list[tuple[ServingWish, SwitchVerdict | None]]:
        """All wishes and what came of them, the oldest first. Raises Unreadable, also where one was lost."""
        return [
            (
                numbered.read(self._wishes(model), number, ServingWish, DESIRED),
                codec.read_if_there(self._verdict(model, number), SwitchVerdict, VERDICT),
            )
            for number in numbered.numbers(self._wishes(model), self._newest(model))
        ]

    def answering(self, model: str) -> Answering | None:
        """What the front last said of a model."""
        return codec.read_if_whole(self.folder / model / "answering.json", Answering, ANSWERING)

    def say(self, model: str, answering: Answering) -> None:
        """Keep what answers now."""
        codec.replace(self.folder / model / "answering.json", answering, ANSWERING)

    def front(self) -> FrontPlace | None:
        """Where the front was when it last started."""
        return codec.read_if_whole(self.folder / "front.json", FrontPlace, FRONT)

    def keep_front(self, front: FrontPlace) -> None:
        """Keep where the front is."""
        codec.replace(self.folder / "front.json", front, FRONT)

    def exports(self, model: str) -> Path:
        """The folder of a model's exports."""
        return self.folder / model / "models"

    def export(self, model: str, checkpoint: str) -> Path:
        """Where the export of a checkpoint is, or is to be."""
        return self.exports(model) / checkpoint

    def _newest(self, model: str) -> int:
        """The number of the newest wish: what came of a wish says that there was one. Raises Unreadable."""
        return max(numbered.newest(self._wishes(model)), numbered.newest(self._verdicts(model)))

    def _wishes(self, model: str) -> Path:
        return self.folder / model / "wanted"

    def _verdicts(self, model: str) -> Path:
        return self.folder / model / "verdicts"

    def _verdict(self, model: str, number: int) -> Path:
        return numbered.path(self._verdicts(model), number)


def service_name(model: str, version: ServedVersion) -> str:
    """The name of a version's objects: 63 characters at most, as a Service's is."""
    plain = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in model.lower())
    return f"serve-{plain[:40].strip('-')}-{version.checkpoint[:12]}"
