"""The bookkeeper: makes a training's account from its history, in order.

The order follows from tokens, claims and each writer's own sequence, never from a comparison of two machines' clocks. A
generation's spans keep their durations: they are moved as a whole to the time that the control plane's records leave
for them, and cut if they do not fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from slipway.trainer.record.accounting import buckets
from slipway.trainer.record.accounting.account import Account, InterruptionCost, TrainingHistory
from slipway.trainer.record.accounting.segments import GenerationFold, Stretch
from slipway.trainer.record.claims import Token
from slipway.trainer.record.incarnation_exit import Exit

NOTICE_SECONDS = 60.0
"""A running control plane notices the end of a job within this time, and claims the next start."""
BY_HAND = "trainer"
"""Who claims when a person starts ranks by hand, without a control plane."""
ABSENT = (buckets.WAITING, buckets.UNDETECTED, buckets.RESTART)
"""Buckets that an absent control plane explains better. A queue goes on without it."""


def account(history: TrainingHistory, now: float) -> Account:
    """The account of a training; raises ValueError for one that was never wanted nor started."""
    return _Builder(history, now).built()


class _Builder:
    """Walks through a history in its order, with the moment up to which the time is accounted for."""

    def __init__(self, history: TrainingHistory, now: float) -> None:
        self._history = history
        self._now = now
        self._stretches: list[Stretch] = []
        self._retained: list[Stretch] = []
        """The stretches with steps that no interruption has taken back, by step."""
        self._interruptions: list[InterruptionCost] = []
        self._remarks: list[str] = []
        self._started: float | None = None
        self._paying = -1
        """The index of the interruption to which the time until the next step is charged; -1 for none."""
        self._first_paying = -1
        """The index of the first interruption since the last step, which lost the repeated steps; -1 for none."""

    def built(self) -> Account:
        tokens = _by_incarnation(self._history)
        self._at = self._begin = self._first_moment(tokens)
        for number, generations in tokens.items():
            self._wait_for(number, generations)
            self._run(number, generations)
        self._wait_for_more(max(tokens, default=0))
        started = self._at if self._started is None else self._started
        stretches = tuple(self._stretches)
        return Account(self._begin, self._at, stretches, tuple(self._interruptions), tuple(self._remarks), started)

    def _first_moment(self, tokens: Mapping[int, Sequence[Token]]) -> float:
        wishes = [wish.at for wish in self._history.wishes if wish.run]
        if wishes:
            return wishes[0]
        claims = [claim.at for claim in self._history.claims]
        first = [
            self._process_began(token) for generation_tokens in list(tokens.values())[:1] for token in generation_tokens
        ]
        begun = [moment for moment in first if moment]
        if not claims and not begun:
            raise ValueError("found no wish, no claim and no event: there is nothing to account for")
        by_hand = not self._history.claims or self._history.claims[0].by == BY_HAND
        return min(begun + claims) if by_hand and begun else claims[0] if claims else begun[0]

    def _process_began(self, token: Token) -> float | None:
        fold = self._history.generations.get(token)
        return (fold.since or fold.begun) if fold else None

    def _wait_for(self, number: int, generations: Sequence[Token]) -> None:
        """From the end of the incarnation before to the first process of this one."""
        claim = next((candidate for candidate in self._history.claims if candidate.token.incarnation == number), None)
        if claim is not None and claim.by == BY_HAND:
            begun = next((moment for token in generations if (moment := self._process_began(token))), None)
            if self._stretches and begun is not None:
                self._remarks.append(f"incarnation {number} was started by hand: nobody had watched the one before")
                self._spend(begun, buckets.AWAY)
            return
        bucket = buckets.RESTART if self._paying >= 0 else buckets.WAITING
        self._rest(number - 1)
        if claim is not None:
            self._spend(claim.at, bucket)
        self._spend(self._history.submitted.get(number), bucket)

    def _rest(self, after: int) -> None:
        """Account the time from the end of an incarnation in which the training is not wanted."""
        wishes = [wish for wish in self._history.wishes if wish.incarnation == after]
        if any(not wish.run for wish in wishes) and wishes[-1].run:
            self._spend(wishes[-1].at, buckets.STOPPED)
            self._paying = -1

    def _run(self, number: int, generations: Sequence[Token]) -> None:
        """All generations of an incarnation, and its end."""
        ended = self._history.exits.get(number)
        trainers_own = ended is not None and ended.by == BY_HAND
        ceiling = ended.at if ended and not trainers_own else self._now
        for index, token in enumerate(generations):
            fold = self._history.generations.get(token)
            last = index == len(generations) - 1
            if fold is not None and fold.begun is not None:
                self._add(token, min(ceiling, self._now), buckets.RESTART if index else buckets.QUEUE)
            if not last:
                self._interrupt(token, ended=None)
                # A supervisor writes them into the segment of the generation that follows.
                both = token, generations[index + 1]
                self._spend_within(self._mark("detected", *both), ceiling, buckets.UNDETECTED)
                self._spend_within(self._mark("ranks_ready", *both), ceiling, buckets.RESTART)
        token = generations[-1]
        fold = self._history.generations.get(token)
        if ended is None or trainers_own or (fold is not None and fold.ended):
            # It reported its end itself; the time after it is the control plane's time to notice.
            if ended is not None and ended.outcome == "failed":
                self._interrupt(token, ended)
            if ended is not None and not trainers_own and self._wanted_after(number):
                self._see(number, ended)
            elif ended is None and self._follows(number):
                self._interrupt(token, None)
            return
        detected = self._mark("detected", token)
        over = self._history.ended.get(number)
        if detected is not None and detected <= self._at:  # it was of the recovery that led to this generation
            detected = None
        noticed = min([ended.at, *(moment for moment in (detected, over) if moment is not None)])
        if fold is None or fold.begun is None:  # it was on its way all the time: no progress was there to be missed
            self._spend(noticed, buckets.RESTART if len(generations) > 1 else buckets.QUEUE)
        if ended.outcome == "failed" or ended.disrupted:
            self._interrupt(token, ended)
        self._spend(noticed, buckets.UNDETECTED)
        self._see(number, ended)

    def _see(self, number: int, ended: Exit) -> None:
        """From the end of a job to the moment at which the control plane saw it: longer than usual, it was away."""
        if ended.outcome == "stopped" and not ended.disrupted:
            return self._spend(ended.at, buckets.STOPPED)
        self._spend(min(ended.at, self._at + NOTICE_SECONDS), buckets.RESTART)
        if ended.at > self._at:
            late = ended.at - self._at
            self._remarks.append(
                f"incarnation {number} had ended {late + NOTICE_SECONDS:.0f} s before anybody saw it; "
                f"expected at most {NOTICE_SECONDS:.0f} s"
            )
            self._spend(ended.at, buckets.AWAY)

    def _wait_for_more(self, number: int) -> None:
        """Account the time from the end of the newest incarnation until now, if the training should still run."""
        ended = self._history.exits.get(number)
        if ended is None and number:
            fold = self._last_fold(number)
            if fold is None or not fold.ended:
                bucket = buckets.QUEUE
                if fold is not None:
                    bucket = buckets.BY_PHASE.get(fold.phase, buckets.STARTING)
                return self._spend(self._now, bucket)
        if self._wanted_after(number) and not (ended and ended.outcome == "succeeded"):
            self._rest(number)
            self._spend(self._now, buckets.RESTART if self._paying >= 0 else buckets.WAITING)

    def _last_fold(self, number: int) -> GenerationFold | None:
        tokens = [token for token in self._history.generations if token.incarnation == number]
        return self._history.generations[max(tokens)] if tokens else None

    def _wanted_after(self, number: int) -> bool:
        return bool(self._history.wishes) and self._history.wishes[-1].run

    def _follows(self, number: int) -> bool:
        return any(claim.token.incarnation > number for claim in self._history.claims)

    def _add(self, token: Token, ceiling: float, before: str) -> None:
        """Account the spans of a generation, moved to the time that is left for them, and cut if they do not fit.

        `before`: the use of the time until its process began.
        """
        fold = self._history.generations[token]
        assert fold.begun is not None
        shift = max(self._at - fold.begun, min(0.0, ceiling - fold.at))
        begun = fold.begun + shift
        since = min(fold.since + shift, begun) if fold.since else begun
        self._spend_within(since, ceiling, before)
        self._started = self._at if self._started is None else self._started
        self._spend_within(begun, ceiling, buckets.STARTING)
        for stretch in fold.stretches:
            if stretch.first and self._paying < 0 and self._retained and self._retained[-1].last >= stretch.first:
                # The generation itself went back to an earlier step.
                self._interrupt(token, None)
            self._put(_between(stretch, self._at, stretch.end + shift, ceiling))

    def _put(self, stretch: Stretch) -> None:
        """Add a span at the end of the accounted time."""
        if stretch.first:
            self._take_back(stretch.first)
            self._retained.append(stretch)
        if stretch.end > stretch.begin:
            self._stretches.append(stretch)
            self._at = stretch.end
            self._charge({name: spent for name, spent in stretch.seconds.items() if name in buckets.START})
        if stretch.last >= stretch.first > 0:
            self._paying = -1  # the steps go on

    def _take_back(self, first: int) -> None:
        """Steps from `first` on are repeated: their earlier time is lost."""
        while self._retained and self._retained[-1].last >= first:
            stretch = self._retained[-1]
            if stretch.last < stretch.first:  # it was restored, and did no step
                self._retained.pop()
                continue
            share = min(1.0, (stretch.last - first + 1) / (stretch.last - stretch.first + 1))
            lost = {bucket: stretch.seconds[bucket] * share for bucket in buckets.STEPPING if bucket in stretch.seconds}
            for bucket, spent in lost.items():
                stretch.seconds[bucket] -= spent
                if share == 1:
                    del stretch.seconds[bucket]
            stretch.seconds[buckets.REPEATED] = stretch.seconds.get(buckets.REPEATED, 0.0) + sum(lost.values())
            stretch.mfu_seconds = stretch.mfu_seconds * (1 - share)
            stretch.mfu_over = stretch.mfu_over * (1 - share)
            self._charge({buckets.REPEATED: sum(lost.values())}, self._first_paying)
            if share < 1:
                stretch.last = first - 1
                return
            self._retained.pop()

    def _interrupt(self, token: Token, ended: Exit | None) -> None:
        """Charge the time from now on, until the next step, to the interruption of this generation."""
        events = [event for event in self._history.marks.get(token, ()) if event["event"] in ("incident", "detected")]
        event = dict(events[-1]) if events else {}
        kind = (ended.kind if ended else "") or str(event.get("kind", ""))
        reason = ended.reason if ended else str(event.get("reason", event.get("cause", "")))
        nodes = ended.nodes if ended else tuple(event.get("nodes", ()))
        self._interruptions.append(InterruptionCost(str(token), kind, reason, nodes, {}))
        began = self._paying < 0
        self._paying = len(self._interruptions) - 1
        self._first_paying = self._paying if began else self._first_paying

    def _charge(self, seconds: Mapping[str, float], index: int | None = None) -> None:
        """The interruption at this place, the present one unless it is given, has cost these seconds."""
        index = self._paying if index is None else index
        if self._paying < 0:
            return
        interruption = self._interruptions[index]
        lost = dict(interruption.lost)
        for bucket, spent in seconds.items():
            lost[bucket] = lost.get(bucket, 0.0) + spent
        self._interruptions[index] = replace(interruption, lost=lost)

    def _spend(self, until: float | None, bucket: str) -> None:
        """Account the time up to a moment as `bucket`, except for the absence of the control plane."""
        if until is None or until <= self._at:
            return
        until = min(until, max(self._now, self._at))
        for begin, end in sorted(self._history.away) if bucket in ABSENT else ():
            if begin < until and end > self._at:
                self._stretch(max(begin, self._at), bucket)
                self._remarks.append(f"the control plane did not tick for {end - begin:.0f} s")
                self._stretch(min(end, until), buckets.AWAY)
        self._stretch(until, bucket)

    def _spend_within(self, until: float | None, ceiling: float, bucket: str) -> None:
        """The same, for a moment on another clock than that of `ceiling`, which it cannot be after."""
        self._spend(None if until is None else min(until, ceiling), bucket)

    def _stretch(self, until: float, bucket: str) -> None:
        if until > self._at:
            self._stretches.append(Stretch(self._at, until, {bucket: until - self._at}))
            self._at = until
            if bucket not in buckets.PRODUCTIVE:
                self._charge(self._stretches[-1].seconds)

    def _mark(self, event: str, *tokens: Token) -> float | None:
        """When another writer than rank 0 wrote this event into the segments of these tokens, for the first time."""
        marks = [mark for token in tokens for mark in self._history.marks.get(token, ())]
        return min((float(mark["t"]) for mark in marks if mark["event"] == event), default=None)


def _by_incarnation(history: TrainingHistory) -> dict[int, list[Token]]:
    """The tokens of each incarnation, in order."""
    tokens = {claim.token for claim in history.claims} | set(history.generations)
    numbers: dict[int, list[Token]] = {}
    for token in sorted(tokens):
        numbers.setdefault(token.incarnation, []).append(token)
    return numbers


def _between(stretch: Stretch, begin: float, end: float, ceiling: float) -> Stretch:
    """A copy of a stretch from `begin` to `end`, cut at `ceiling`; its seconds are scaled to fit."""
    end = max(begin, min(end, ceiling))
    total = sum(stretch.seconds.values())
    scale = (end - begin) / total if total else 0.0
    seconds = {bucket: spent * scale for bucket, spent in stretch.seconds.items()}
    if end > begin and not seconds:
        seconds = {buckets.STARTING: end - begin}
    return replace(stretch, begin=begin, end=end, seconds=seconds)
