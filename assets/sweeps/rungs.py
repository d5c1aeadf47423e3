"""The rungs of a sweep: the steps below the full length at which its trials are compared."""

from collections.abc import Sequence

from slipway.assets.sweeps.events import Opened


def rungs_of(plan: Opened) -> tuple[int, ...]:
    """The rungs of a plan, ascending; its scheduler has them in a list, whose last is the full length, or `every`."""
    if "every" in plan.scheduler:
        return tuple(range(plan.scheduler["every"], plan.steps, plan.scheduler["every"]))
    return tuple(plan.scheduler.get("rungs", ())[:-1])


def rung_reached(rungs: Sequence[int], step: int) -> int | None:
    """The highest rung at or below `step`, None below the first."""
    return max((rung for rung in rungs if rung <= step), default=None)
