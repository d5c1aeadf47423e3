"""The switch of one model: it brings the running backends and the traffic to the state that the records ask for.

The old version keeps all of the traffic until the new one is ready, and its share until the verdict. Then the losing
version finishes its answers and stops. A backend that dies is restarted, after longer and longer pauses.
"""

import asyncio
import time
from collections import deque
from typing import Any

from slipway.serving.front.backends import Backend, BackendMaker
from slipway.serving.front.quality import QualityComparison, written
from slipway.serving.front.request_counter import RequestCounter
from slipway.serving.front.rollout import Answered, decide, goes_to_new, waits_for
from slipway.serving.records import Answering, ServedState, ServedVersion, ServingRecords, Share, SwitchVerdict

CRASHES = 3
"""A new version that dies this many times before its verdict is rolled back."""
PAUSE_SECONDS = 0.5
LONGEST_PAUSE = 30.0
KEPT_PAIRS = 256


class ModelSwitch:
    """The backends of one model in one front, and the choice between them."""

    def __init__(self, model: str, records: ServingRecords, maker: BackendMaker, url: str) -> None:
        self.model = model
        self._records = records
        self._maker = maker
        self._url = url
        self.state = ServedState(model, 0, None, None)
        self.backends: dict[str, Backend] = {}
        """By the checkpoint of the version."""
        self.answered: dict[str, Answered] = {}
        """By checkpoint; reset with each new wish."""
        self.pairs: deque[float] = deque(maxlen=KEPT_PAIRS)
        self.changed = asyncio.Event()
        """Set when requests that wait for a backend should check again."""
        self.quality = QualityComparison(lambda: self.pair, self._add_pair)
        self.request_counter = RequestCounter(records.durable, model, lambda: self.state.settled)
        self._requests = 0
        self._crashes: dict[str, int] = {}
        self._deaths: dict[str, tuple[str, str]] = {}
        """The last end of a version's backend ("died" or "was refused") and its reason, by checkpoint."""
        self._not_before: dict[str, float] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._reported: Answering | None = None

    async def tick(self) -> None:
        """Read the records, and start, stop and judge backends accordingly. Raises ValueError and OSError."""
        stored = self._records.state(self.model)
        if stored.number != self.state.number:
            self.answered = {}
            self._requests = 0
            self.pairs.clear()
            self.quality.begin()
            self._crashes.clear()
            self._deaths.clear()
        self.state = stored
        await self._bring(self._needed())
        await self._judge()
        self._say()

    def choose(self, without: frozenset[str] = frozenset(), only: str = "") -> Backend | None:
        """The backend for the next request; None while none is ready, apart from those that failed it (`without`).

        `only` is the checkpoint of the version that the request names.
        """
        if only:
            named = self.backends.get(only)
            return named if _answers(named, without) else None
        old = self._of(self.state.settled)
        new = self._of(self.state.coming)
        old_answers = _answers(old, without)
        new_answers = _answers(new, without)
        if not (old_answers and new_answers):
            # A version on trial replaces the old one only if that is gone or has failed the request.
            alone = self.state.settled is None or without or old is None or old.state in ("refused", "dead")
            if new_answers and alone:
                return new
            if old_answers:
                return old
            return None
        assert self.state.desired is not None
        number = self._requests
        self._requests += 1
        if goes_to_new(number, self.state.desired.policy.share):
            return new
        return old

    def _of(self, version: ServedVersion | None) -> Backend | None:
        if version is None:
            return None
        return self.backends.get(version.checkpoint)

    @property
    def expects(self) -> bool:
        """Whether another backend will become ready. During the pause after a death, a version has no backend."""
        paused = self._needed().keys() - self.backends.keys()
        return bool(paused) or any(backend.state in ("starting", "dead") for backend in self.backends.values())

    @property
    def problem(self) -> str:
        """The reason why no version answers; empty while one does, or none should."""
        if not self._needed():
            verdict = self.state.verdict
            if verdict is not None and verdict.outcome == "back":
                return verdict.why
            return ""
        if any(backend.state == "ready" for backend in self.backends.values()):
            return ""
        return "; ".join(f"{version.named(self.model)}: {self._note(version)}" for version in self._needed().values())

    def observed(self, backend: Backend) -> Answered:
        """The measurements of a backend's answers since the newest wish."""
        return self.answered.setdefault(backend.version.checkpoint, Answered())

    @property
    def pair(self) -> tuple[Backend, Backend] | None:
        """The old and the new version's backends if both are ready and share the traffic, otherwise None."""
        settled = self.state.settled
        coming = self.state.coming
        if settled is None or coming is None or self.state.desired is None or self.state.desired.policy.share >= 1.0:
            return None
        old = self.backends.get(settled.checkpoint)
        new = self.backends.get(coming.checkpoint)
        if old is None or new is None or old is new:
            return None
        if not old.state == new.state == "ready":
            return None
        return old, new

    def _add_pair(self, pair: tuple[Backend, Backend], worse: float) -> None:
        """Record how much worse the new version predicts a text, unless the versions have changed meanwhile."""
        if pair == self.pair:
            self.pairs.append(worse)

    def note(self, document: Any) -> None:
        """Count a request that was just answered, and offer its text to the comparison of versions."""
        self.quality.offer(document)
        self.request_counter.offer(written(document))

    async def end(self) -> None:
        """Stop all backends after their answers in progress."""
        await self._bring({})
        await asyncio.gather(*self._retiring)

    def _needed(self) -> dict[str, ServedVersion]:
        both = (self.state.settled, self.state.coming)
        return {version.checkpoint: version for version in both if version is not None}

    async def _bring(self, needed: dict[str, ServedVersion]) -> None:
        for key in self.backends.keys() - needed.keys():
            self._retire(self.backends.pop(key))
        for key, version in needed.items():
            current = self.backends.get(key)
            if current is not None and self._is_over(current):
                did = "was refused" if current.state == "refused" else "died"
                self._crashes[key] = self._crashes.get(key, 0) + 1
                self._deaths[key] = (did, current.why)
                self._not_before[key] = time.monotonic() + _pause_after(self._crashes[key])
                await current.end()
                del self.backends[key]
                current = None
            if current is None and time.monotonic() >= self._not_before.get(key, 0.0):
                self.backends[key] = backend = self._maker.make(self.model, version)
                await backend.start()
                self._wake_when_changed(backend)

    def _is_over(self, backend: Backend) -> bool:
        """Whether a new backend must replace this one.

        A refused version that has answered before is tried again: the memory may have been full. For a new version, a
        refusal is the verdict.
        """
        refused = backend.state == "refused" and backend.version == self.state.settled
        return backend.state == "dead" or refused

    def _retire(self, backend: Backend) -> None:
        task = asyncio.create_task(backend.retire())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _wake_when_changed(self, backend: Backend) -> None:
        async def wake() -> None:
            await backend.changed.wait()
            self.wake()

        task = asyncio.create_task(wake())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def wake(self) -> None:
        """Let requests that wait for a backend check again."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def _judge(self) -> None:
        """Record the verdict on a switch, if there is one, and apply it."""
        verdict = self._verdict()
        if verdict is not None:
            self._records.judge(self.state, verdict)  # if another front was faster, its verdict is valid
            self.state = self._records.state(self.model)
            await self._bring(self._needed())
            self.wake()

    def _verdict(self) -> SwitchVerdict | None:
        coming = self.state.coming
        settled = self.state.settled
        desired = self.state.desired
        if coming is None or desired is None:
            return None
        new = self.backends.get(coming.checkpoint)
        crashes = self._crashes.get(coming.checkpoint, 0)
        if settled is not None and settled.checkpoint == coming.checkpoint:
            if new and new.state == "ready":
                return SwitchVerdict("all", "it already has all of the traffic")
            return None
        if new is not None and new.state == "refused":
            return SwitchVerdict("back", new.why)
        if crashes >= CRASHES and settled is not None:
            return SwitchVerdict(
                "back", f"it died {crashes} times, the last time as {self._deaths[coming.checkpoint][1]}"
            )
        if new is None or new.state != "ready":
            return None
        if settled is None or desired.policy.share >= 1.0:
            return SwitchVerdict("all", "it is ready")
        return self._compared(settled, coming)

    def _compared(self, settled: ServedVersion, coming: ServedVersion) -> SwitchVerdict | None:
        assert self.state.desired is not None
        old, new = (self.answered.setdefault(version.checkpoint, Answered()) for version in (settled, coming))
        seconds = time.monotonic() - new.since if new.since else 0.0
        return decide(self.state.desired.policy, old, new, list(self.pairs), seconds, self.quality.works)

    def shares(self) -> tuple[Share, ...]:
        """The versions and their shares of new requests."""
        settled = self.state.settled
        coming = self.state.coming
        desired = self.state.desired
        both = [version for version in (settled, coming) if version is not None]
        if len(both) == 2 and both[0] == both[1]:
            both = both[:1]
        share = 0.0
        if desired and coming and self._is_ready(coming):
            share = desired.policy.share
        if settled is None or settled == coming:
            share = 1.0
        parts = {version.checkpoint: share if version == coming else 1.0 - share for version in both}
        return tuple(
            Share(version, round(parts[version.checkpoint], 6), self._is_ready(version), self._note(version))
            for version in both
        )

    def _is_ready(self, version: ServedVersion) -> bool:
        return _answers(self._of(version), frozenset())

    def _note(self, version: ServedVersion) -> str:
        backend = self.backends.get(version.checkpoint)
        if backend is None:
            return self._pause(version.checkpoint)
        if backend.state != "ready":
            return backend.why or backend.state
        if self.pair is None or backend is not self.pair[1] or self.state.desired is None:
            return ""
        old, new = (self.answered.get(version.version.checkpoint) or Answered() for version in self.pair)
        return waits_for(self.state.desired.policy, old, new, list(self.pairs))

    def _pause(self, checkpoint: str) -> str:
        """The reason why a needed version has no backend: it died or was refused, and restarts after a pause."""
        if checkpoint not in self._deaths:
            return "not started yet"
        crashes = self._crashes.get(checkpoint, 1)
        times = "once" if crashes == 1 else f"{crashes} times"
        did, why = self._deaths[checkpoint]
        seconds = _pause_after(crashes)
        return f"it {did} {times}, as {why}; it starts again after {seconds:g} s"

    def _say(self) -> None:
        answering = Answering(self.state.number, self.shares(), self._url, self.problem)
        if answering != self._reported:
            self._records.say(self.model, answering)
            self._reported = answering


def _pause_after(crashes: int) -> float:
    """Seconds until a version that died this many times restarts."""
    return min(LONGEST_PAUSE, PAUSE_SECONDS * 2.0 ** (crashes - 1))


def _answers(backend: Backend | None, without: frozenset[str]) -> bool:
    return backend is not None and backend.state == "ready" and backend.version.checkpoint not in without
