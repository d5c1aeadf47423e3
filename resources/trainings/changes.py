"""Changes of terms: what differs between two terms of one training, by name, and when it takes effect."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.resources.trainings.records import Terms

AT_ONCE = (
    "no_progress_seconds",
    "hang_seconds",
    "failures_without_checkpoint",
    "pending_seconds",
    "min_nodes",
    "grow",
    "owner",
)
"""Terms that the control plane reads at every decision; a job has all others from its start."""
PASSED_OVER = ("origin", "edition")
Changes = dict[str, tuple[Any, Any]]
"""By the dotted name of a term, its value before and its value now; None for one that is not there."""


def changes(old: Terms, new: Terms) -> Changes:
    """What differs, without the origin, which is history, and the edition, which counts changes."""
    before, now = (dict(_flat("", _shown(each))) for each in (old, new))
    names = [*before, *(name for name in now if name not in before)]
    return {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)}


def sentence(changed: Changes) -> str:
    """The changes in one line for a person."""
    return ", ".join(f"{name}: {_word(old)} to {_word(new)}" for name, (old, new) in changed.items())


def takes_effect(changed: Changes) -> str:
    """When they take effect: what a running job was started with holds until its training is started again."""
    later = [name for name in changed if name not in AT_ONCE]
    if not later:
        return "at once"
    if len(later) == len(changed):
        return "when the next incarnation starts"
    return f"at once, but {', '.join(later)} when the next incarnation starts"


def _shown(terms: Terms) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(terms).items() if name not in PASSED_OVER}


def _flat(above: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(f"{above}{name}.", item)
        else:
            yield f"{above}{name}", list(item) if isinstance(item, tuple) else item


def _word(value: Any) -> str:
    return "nothing" if value in (None, "", {}, []) else json.dumps(value, ensure_ascii=False)
