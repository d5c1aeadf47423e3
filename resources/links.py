"""Links: paths on Dagster's webserver for each subject. Pure, and without Dagster, which takes seconds to import.

`slipway.assets.keys` names the assets; a test checks that the two agree.
"""

from slipway.recipes import asset_prefix


def asset(*path: str) -> str:
    """An asset's page."""
    return f"/assets/{'/'.join(path)}"


def incident(recipe: str, name: str) -> str:
    """An incident's partition."""
    return _partition(asset(lane(recipe), "incident"), name)


def training(recipe: str, id: str, noun: str = "training") -> str:
    """A training's partition of the asset `noun`."""
    return _partition(asset(lane(recipe), noun), id)


def checkpoint(recipe: str, training: str, step: int) -> str:
    """A checkpoint's partition."""
    return _partition(asset(lane(recipe), "checkpoint"), f"{training}.{step:09d}")


def node(name: str) -> str:
    """A node's partition of the asset that measures nodes."""
    return _partition(asset("platform", "preflight"), name)


def lane(recipe: str) -> str:
    """The first component of the asset keys of a recipe."""
    return asset_prefix.lane(recipe)


def _partition(page: str, name: str) -> str:
    return f"{page}?view=partitions&partition={name}"
