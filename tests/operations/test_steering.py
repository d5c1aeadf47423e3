"""Steering a sweep in the UI: one job a recipe, with what a person may ask of its present sweep."""

from typing import Any

import dagster as dg

from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.store import SweepStore
from tests.operations.test_branching import refusal
from tests.sensors.platform import SEARCH, Platform


def opened(platform: Platform) -> SweepStore:
    recipe = platform.recipes.sweeps[SEARCH]
    return open_sweep(current_subject(recipe, platform.recipe, platform.tiers, platform.tracking), platform.tiers)


def steer(platform: Platform, request: str, **config: Any) -> dg.ExecuteInProcessResult:
    result: dg.ExecuteInProcessResult = platform.repository.get_job("tiny_search_steer").execute_in_process(
        {"ops": {"tiny_search_ask": {"config": {"request": request, **config}}}},
        instance=platform.instance,
        resources=platform.resources,
        raise_on_error=False,
    )
    return result


def test_what_is_asked_in_the_launchpad_is_asked_of_the_sweep(platform: Platform):
    store = opened(platform)
    assert steer(platform, "PAUSE", why="the nodes are needed").success
    state = store.state()
    assert state is not None and state.pause is not None and state.pause.why == "the nodes are needed"
    result = steer(platform, "SPEND", fields=["trials=9", "parallel=4"])
    assert result.success
    state = store.state()
    assert state is not None and (state.budget.trials, state.budget.parallel) == (9, 4)
    assert state.budget.by == f"run {result.run_id}"


def test_what_the_sweep_cannot_do_fails_the_run_with_the_reason(platform: Platform):
    store = opened(platform)
    assert refusal(steer(platform, "RESUME")) == f"sweep {store.sweep}: found it under way, expected a paused one"
    assert "found no such sweep of tiny-search" in refusal(steer(platform, "STOP", sweep="other-000000000000"))
