"""Budgets: how many failures of each cause a training may have without a new checkpoint. Pure.

Failures of machines are not the training's fault: they may cost many starts, with a pause before each. Errors of the
program are retried a few times. Errors that a new start cannot change are not retried. `slipway.trainer.record.causes`
has the numbers.

A training with a checkpoint fails for good only because of its own specification, code or data. Any other failure that
repeats too often holds it back: it waits for a person, and is retried after longer and longer pauses.
"""

from collections.abc import Mapping, Sequence

from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TRIALS
from slipway.trainer.base.quantities import counted
from slipway.trainer.record import causes

IN_A_ROW = "in a row without a new checkpoint"
IN_ALL = 3
"""The budget for failures of all causes together, as a multiple of `recovery.failures_without_checkpoint`."""
PROMPT = 2
"""The number of restarts in a row without a new checkpoint that happen at once; later ones wait."""
FIRST_REST = 5.0
LONGEST_REST = 300.0
"""The first and the longest pause before a restart, in seconds; each pause is twice as long as the one before."""
LONGEST_HELD_REST = 1800.0
"""The longest pause for a training that waits for a person. It is longer, since each start occupies nodes and each
failure sends a notification."""


def exhausted(kinds: Sequence[str], limit: int, policies: Mapping[str, str], has_checkpoint: bool = False) -> str:
    """The exhausted budget for which the training fails for good, as a sentence; "" if there is none.

    kinds: the causes of the failures in a row without a new checkpoint. limit: the recipe's limit. policies: the
    recipe's reactions by cause. has_checkpoint: whether the training has any checkpoint.
    """
    return _spent([kind for kind in kinds if may_end(kind, policies, has_checkpoint)], limit, policies)


def may_end(kind: str, policies: Mapping[str, str], has_checkpoint: bool) -> bool:
    """Whether failures of this cause may end the training for good, instead of holding it back."""
    cause = causes.cause(kind)
    if cause.is_own or causes.answer(kind, policies) == causes.STOP:  # the recipe asks for it
        return True
    return cause.fault != "platform" and not has_checkpoint


def exceeded_budget(kinds: Sequence[str], limit: int, policies: Mapping[str, str]) -> str:
    """The exhausted budget, even if it does not end the training but makes it wait for a person; else "".

    Arguments as for `exhausted`.
    """
    return _spent(kinds, limit, policies)


def _spent(kinds: Sequence[str], recipe_limit: int, policies: Mapping[str, str]) -> str:
    for kind in dict.fromkeys(kinds):
        count = kinds.count(kind)
        limit = _limit(kind, recipe_limit, policies)
        if limit == causes.AT_ONCE:
            return f"a failure of class {kind or 'unknown'} is not retried"
        if limit is not None and count >= limit:
            return f"{counted(count, 'failure')} of class {kind or 'unknown'} {IN_A_ROW}, expected {limit - 1} at most"
    counting = [kind for kind in kinds if _limit(kind, recipe_limit, policies) is not None]
    if len(counting) >= IN_ALL * recipe_limit:
        return f"{counted(len(counting), 'failure')} {IN_A_ROW}, expected {IN_ALL * recipe_limit - 1} at most"
    return ""


def exhausted_by(facts: TrainingFacts) -> str:
    """The exhausted budget of a training, as `exhausted`."""
    run_policy = facts.run_policy
    kinds = facts.kinds_without_checkpoint
    recipe_limit = run_policy.failures_without_checkpoint
    if facts.folder.parent.name == TRIALS:  # a trial does not wait for a person: its sweep starts it again
        return _spent(kinds, recipe_limit, run_policy.policies)
    return exhausted(kinds, recipe_limit, run_policy.policies, facts.has_checkpoint)


def held_by(facts: TrainingFacts) -> str:
    """The exhausted budget for which an unfinished training waits for a person; "" if there is none."""
    run_policy = facts.run_policy
    if not facts.unfinished or exhausted_by(facts):
        return ""
    return exceeded_budget(facts.kinds_without_checkpoint, run_policy.failures_without_checkpoint, run_policy.policies)


def rest(facts: TrainingFacts, now: float) -> str:
    """Why the next start of a training pauses at `now`, as a sentence; "" if it does not."""
    seconds_left = rest_left(facts, now)
    if seconds_left <= 0:
        return ""
    why = held_by(facts)
    if why:
        return f"a pause of {seconds_left:.0f} s more: it waits for a person after {why}"
    return f"a pause of {seconds_left:.0f} s more, since machines failed several times in a row"


def rest_left(facts: TrainingFacts, now: float) -> float:
    """The remaining pause in seconds before the next start of a training; `now` is in seconds since the epoch."""
    longest = LONGEST_HELD_REST if held_by(facts) else LONGEST_REST
    pause = rest_seconds(facts.kinds_without_checkpoint, longest)
    last = facts.exit_of(facts.incarnation - 1 if facts.running else facts.incarnation) if pause else None
    # If this clock is behind that of the process that recorded the end, the passed time is unknown.
    if last is None or now < last.at:
        return 0.0
    return max(0.0, pause - (now - last.at))


def rest_seconds(kinds: Sequence[str], longest: float = LONGEST_REST) -> float:
    """The pause before the next start after these failures in a row without a new checkpoint, in seconds."""
    others = [kind for kind in kinds if not causes.cause(kind).is_own]
    late = len(others) - PROMPT
    return min(longest, FIRST_REST * 2.0 ** min(late - 1, 10)) if late > 0 else 0.0


def _limit(kind: str, recipe_limit: int, policies: Mapping[str, str]) -> int | None:
    if causes.answer(kind, policies) == causes.STOP:
        return causes.AT_ONCE
    return causes.cause(kind).budget(recipe_limit)
