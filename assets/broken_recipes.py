"""Recipes that cannot be used, as assets: each stands in its lane, with what is wrong with it in place of the lane."""

import re
from collections.abc import Sequence

import dagster as dg

from slipway.assets import keys
from slipway.recipes.usable import BrokenRecipe

NOUN = "recipe"
AFTER = (
    "The lane comes back when the recipe is put right (`slipway recipes check` says whether it is) and the definitions "
    "are loaded again: in the UI, Deployment, then Reload. What runs goes on meanwhile."
)


def broken_assets(broken: Sequence[BrokenRecipe]) -> list[dg.AssetSpec]:
    """An asset `<lane>/recipe` for each lane whose recipes, or one of them, cannot be used."""
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
