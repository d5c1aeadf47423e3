"""Budgets: how many ends of each class are too many while a training makes no new checkpoint. Pure.

What machines do is no fault of the training: it may cost many starts, with a rest before each. An error of the program
is tried a few times. What a new start cannot change is not tried again. `trainer.record.causes` has the numbers.
"""

from collections.abc import Mapping, Sequence

from resources.trainings.facts import TrainingFacts
from trainer.base.counting import counted
from trainer.record import causes

IN_A_ROW = "in a row without a new checkpoint"
IN_ALL = 3
"""So many times the recipe's `recovery.failures_without_checkpoint` ends of all counted classes are too many."""
PROMPT = 2
"""So many starts in a row without a new checkpoint follow at once; before the later ones there is a rest."""
FIRST_REST, LONGEST_REST = 5.0, 300.0
"""Seconds; each rest is twice as long as the one before."""


def exhausted(kinds: Sequence[str], given: int, policies: Mapping[str, str]) -> str:
    """Which budget ran out, as a sentence; empty while none did.

    kinds: the classes of the ends in a row without a new checkpoint. given: the recipe's limit. policies: the recipe's
    answers by cause.
    """
    for kind in dict.fromkeys(kinds):
        count, limit = kinds.count(kind), _limit(kind, given, policies)
        if limit == causes.AT_ONCE:
            return f"a failure of class {kind or 'unknown'} ends the training at once"
        if limit is not None and count >= limit:
            return f"{counted(count, 'failure')} of class {kind or 'unknown'} {IN_A_ROW}, expected {limit - 1} at most"
    counting = [kind for kind in kinds if _limit(kind, given, policies) is not None]
    if len(counting) >= IN_ALL * given:
        return f"{counted(len(counting), 'failure')} {IN_A_ROW}, expected {IN_ALL * given - 1} at most"
    return ""


def exhausted_by(facts: TrainingFacts) -> str:
    """Which budget of a training ran out, as `exhausted`."""
    terms = facts.terms
    return exhausted(facts.kinds_without_checkpoint, terms.failures_without_checkpoint, terms.policies)


def rest(facts: TrainingFacts, now: float) -> str:
    """What the next start of a training rests for, at `now`; empty where it does not."""
    left = rest_left(facts, now)
    return f"a rest of {left:.0f} s more, as machines failed several times in a row" if left > 0 else ""


def rest_left(facts: TrainingFacts, now: float) -> float:
    """Seconds for which the next start of a training waits yet, at `now`, seconds since the epoch."""
    rest = rest_seconds(facts.kinds_without_checkpoint)
    last = facts.exit_of(facts.incarnation - 1 if facts.running else facts.incarnation) if rest else None
    passed = now - last.at if last else -1.0
    # A clock that is behind the one of who recorded the end says nothing.
    return max(0.0, rest - passed) if passed >= 0 else 0.0


def rest_seconds(kinds: Sequence[str]) -> float:
    """How long the next start waits after these ends in a row without a new checkpoint: machines may need a while."""
    machines = [kind for kind in kinds if causes.cause(kind).fault == "machine"]
    late = len(machines) - PROMPT
    return min(LONGEST_REST, FIRST_REST * 2.0 ** min(late - 1, 10)) if late > 0 else 0.0


def _limit(kind: str, given: int, policies: Mapping[str, str]) -> int | None:
    if causes.answer(kind, policies) == causes.STOP:
        return causes.AT_ONCE
    return causes.cause(kind).budget(given)
