"""Budgets: how many ends of each class are too many while a training makes no new checkpoint. Pure.

What machines do is no fault of the training: it may cost many starts, with a rest before each. An error of the program
is tried a few times. What a new start cannot change is not tried again. `slipway.trainer.record.causes` has the
numbers.

A training that has a checkpoint is ended only for what lies in itself: its specification, its code, its data. Whatever
else goes on for too long holds it back: it waits for a person, and is tried again after longer and longer rests.
"""

from collections.abc import Mapping, Sequence

from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TRIALS
from slipway.trainer.base.quantities import counted
from slipway.trainer.record import causes

IN_A_ROW = "in a row without a new checkpoint"
IN_ALL = 3
"""So many times the recipe's `recovery.failures_without_checkpoint` ends of all counted classes are too many."""
PROMPT = 2
"""So many starts in a row without a new checkpoint follow at once; before the later ones there is a rest."""
FIRST_REST, LONGEST_REST = 5.0, 300.0
"""Seconds; each rest is twice as long as the one before."""
LONGEST_HELD_REST = 1800.0
"""The same for a training that waits for a person: each start takes nodes, and each failure notifies."""


def exhausted(kinds: Sequence[str], limit: int, policies: Mapping[str, str], has_checkpoint: bool = False) -> str:
    """Which budget ran out, so that the training is given up, as a sentence; empty while none did.

    kinds: the classes of the ends in a row without a new checkpoint. given: the recipe's limit. policies: the recipe's
    answers by cause. has_checkpoint: whether there is one at all, of whatever start.
    """
    return _spent([kind for kind in kinds if may_end(kind, policies, has_checkpoint)], limit, policies)


def may_end(kind: str, policies: Mapping[str, str], has_checkpoint: bool) -> bool:
    """Whether ends of this class may end the training itself, and do not only hold it back."""
    cause = causes.cause(kind)
    if cause.is_own or causes.answer(kind, policies) == causes.STOP:  # the recipe is the training's own word
        return True
    return cause.fault != "platform" and not has_checkpoint


def exceeded_budget(kinds: Sequence[str], limit: int, policies: Mapping[str, str]) -> str:
    """Which budget ran out, whether or not that ends the training: where it does not, the training waits for a person.

    Arguments as for `exhausted`.
    """
    return _spent(kinds, limit, policies)


def _spent(kinds: Sequence[str], recipe_limit: int, policies: Mapping[str, str]) -> str:
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        limit = _limit(kind, recipe_limit, policies)
        if limit == causes.AT_ONCE:
            return f"a failure of class {kind or 'unknown'} ends the training at once"
        if limit is not None and count >= limit:
            return f"{counted(count, 'failure')} of class {kind or 'unknown'} {IN_A_ROW}, expected {limit - 1} at most"
    counting = [kind for kind in kinds if _limit(kind, recipe_limit, policies) is not None]
    if len(counting) >= IN_ALL * recipe_limit:
        return f"{counted(len(counting), 'failure')} {IN_A_ROW}, expected {IN_ALL * recipe_limit - 1} at most"
    return ""


def exhausted_by(facts: TrainingFacts) -> str:
    """Which budget of a training ran out, as `exhausted`."""
    run_policy = facts.run_policy
    kinds = facts.kinds_without_checkpoint
    recipe_limit = run_policy.failures_without_checkpoint
    if facts.folder.parent.name == TRIALS:  # given up at once: its sweep starts it again, perhaps elsewhere
        return _spent(kinds, recipe_limit, run_policy.policies)
    return exhausted(kinds, recipe_limit, run_policy.policies, facts.has_checkpoint)


def held_by(facts: TrainingFacts) -> str:
    """Which budget of a wanted training that is not given up ran out, so that it waits for a person; empty else."""
    run_policy = facts.run_policy
    if not facts.unfinished or exhausted_by(facts):
        return ""
    return exceeded_budget(facts.kinds_without_checkpoint, run_policy.failures_without_checkpoint, run_policy.policies)


def rest(facts: TrainingFacts, now: float) -> str:
    """What the next start of a training rests for, at `now`; empty where it does not."""
    seconds_left = rest_left(facts, now)
    if seconds_left <= 0:
        return ""
    why = held_by(facts)
    explanation = f"it waits for a person, as there were {why}" if why else "as machines failed several times in a row"
    return f"a rest of {seconds_left:.0f} s more, {explanation}"


def rest_left(facts: TrainingFacts, now: float) -> float:
    """Seconds for which the next start of a training waits yet, at `now`, seconds since the epoch."""
    longest = LONGEST_HELD_REST if held_by(facts) else LONGEST_REST
    rest = rest_seconds(facts.kinds_without_checkpoint, longest)
    last = facts.exit_of(facts.incarnation - 1 if facts.running else facts.incarnation) if rest else None
    passed = now - last.at if last else -1.0
    # A clock that is behind the one of who recorded the end says nothing.
    return max(0.0, rest - passed) if passed >= 0 else 0.0


def rest_seconds(kinds: Sequence[str], longest: float = LONGEST_REST) -> float:
    """How long the next start waits after these ends in a row without a new checkpoint: machines may need a while."""
    others = [kind for kind in kinds if not causes.cause(kind).is_own]
    late = len(others) - PROMPT
    return min(longest, FIRST_REST * 2.0 ** min(late - 1, 10)) if late > 0 else 0.0


def _limit(kind: str, recipe_limit: int, policies: Mapping[str, str]) -> int | None:
    if causes.answer(kind, policies) == causes.STOP:
        return causes.AT_ONCE
    return causes.cause(kind).budget(recipe_limit)
