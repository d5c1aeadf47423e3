"""Changed: how the UI shows a change that a running training took over, or refused."""

from pathlib import Path
from typing import Any

import dagster as dg

from slipway.resources.trainings import updating
from slipway.resources.trainings.updating import KnownChange


def description(change: KnownChange) -> str:
    """One line for a person."""
    pairs = ", ".join(f"{name}: {old!r} to {new!r}" for name, (old, new) in change.pairs.items())
    return f"change {change.number}: {pairs}; {change.state}"


def metadata(change: KnownChange) -> dict[str, Any]:
    """What an observation of it has: who and why, from which step it holds, and the values as a diff."""
    return {
        "change": change.number,
        "state": change.state,
        "step": change.applied.step if change.applied else None,
        "by": change.by,
        "why": change.why,
        "diff": dg.MetadataValue.md(diff(change)),
    }


def of_training(folder: Path) -> dict[str, Any]:
    """All changes of a training that it took over, for its result; empty where there are none."""
    found = [each for each in updating.known(folder) if each.applied]
    return {"changes": dg.MetadataValue.md("\n".join(f"- {description(each)}" for each in found))} if found else {}


def diff(change: KnownChange) -> str:
    """The values before and since, as a block of Markdown."""
    lines = [f"- {name}: {old!r}\n+ {name}: {new!r}" for name, (old, new) in change.pairs.items()]
    return "\n".join(["```diff", *lines, "```"])
