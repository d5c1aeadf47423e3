"""What shell completion offers: names that are there. It is asked at every tab, so it reads folders and no contents."""

import contextlib
from collections.abc import Iterator

from slipway.cli import command_context


def trainings(incomplete: str) -> list[str]:
    """Trainings and trials."""
    with contextlib.suppress(ValueError, OSError):
        return sorted(id for id in command_context.current().stores() if id.startswith(incomplete))
    return []


def checkpoints(incomplete: str) -> list[str]:
    """TRAINING@STEP once the training is written in full, trainings before."""
    training, at, _ = incomplete.partition("@")
    with contextlib.suppress(ValueError, OSError):
        if at:
            steps = (commit.step for commit in command_context.current().training(training).commits())
            return [name for step in steps if (name := f"{training}@{step}").startswith(incomplete)]
    return trainings(incomplete)


def nodes(incomplete: str) -> list[str]:
    """Nodes."""
    with contextlib.suppress(ValueError, OSError):
        return [node.name for node in command_context.current().fleet.nodes() if node.name.startswith(incomplete)]
    return []


def recipes(incomplete: str) -> list[str]:
    """Recipes of any kind."""
    return sorted(
        {name for kind in ("datasets", "suites", "trainings", "sweeps") for name in _recipes(kind, incomplete)}
    )


def training_recipes(incomplete: str) -> list[str]:
    """Training recipes."""
    return sorted(_recipes("trainings", incomplete))


def sweep_recipes(incomplete: str) -> list[str]:
    """Sweep recipes."""
    return sorted(_recipes("sweeps", incomplete))


def datasets(incomplete: str) -> list[str]:
    """Dataset recipes."""
    return sorted(_recipes("datasets", incomplete))


def _recipes(kind: str, incomplete: str) -> Iterator[str]:
    from slipway.recipes import folder

    yield from (path.stem for path in (folder.selected() / kind).glob(f"{incomplete}*.yaml"))
