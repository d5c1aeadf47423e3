"""Broken recipes as assets: one asset shows the problems of a recipe in place of the recipe's own assets."""

import re
from collections.abc import Sequence

import dagster as dg

from slipway.assets import keys
from slipway.recipes.usable import BrokenRecipe

NOUN = "recipe"
AFTER = (
    "To get its assets back, correct the recipe (`slipway recipes check` validates it) and reload the definitions: in "
    "the UI, Deployment, then Reload. Runs and trainings that are already in progress continue."
)


def broken_assets(broken: Sequence[BrokenRecipe]) -> list[dg.AssetSpec]:
    """One asset `<prefix>/recipe` for each asset prefix with a broken recipe."""
    by_lane: dict[str, list[BrokenRecipe]] = {}
    for recipe in broken:
        by_lane.setdefault(re.sub(r"\W", "_", keys.lane(recipe.name), flags=re.ASCII), []).append(recipe)
    return [_broken(lane, recipes) for lane, recipes in by_lane.items()]


def _broken(lane: str, recipes: Sequence[BrokenRecipe]) -> dg.AssetSpec:
    problems = [problem for recipe in recipes for problem in recipe.problems]
    named = " and ".join(f"{recipe.kind}/{recipe.name}" for recipe in recipes)
    listed = "\n".join(f"- {problem}" for problem in problems)
    return dg.AssetSpec(
        dg.AssetKey([lane, NOUN]),
        group_name=lane,
        kinds={"yaml"},
        description=f"**{named} cannot be used.**\n\n{listed}\n\n{AFTER}",
        metadata={"problems": dg.MetadataValue.md(listed)},
    )
