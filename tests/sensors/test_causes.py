"""Causes: a training that began by itself says why, in its id and its name; and what it cost is added up so."""

import datetime

import dagster as dg
import pytest

from slipway.assets import training_commands
from slipway.assets.retraining import renew
from slipway.recipes.assignments import applied
from slipway.recipes.renewal import RenewalSection
from slipway.resources.trainings import account_tables, naming
from slipway.resources.trainings.accounts import Prices
from slipway.resources.trainings.decision import Action
from tests.sensors.platform import BY, TINY, Platform

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
SUNDAY = datetime.datetime(2026, 1, 4, 3, tzinfo=datetime.UTC)


def scheduled(platform: Platform) -> None:
    with dg.build_schedule_context(
        instance=platform.instance,
        scheduled_execution_time=SUNDAY,
        resources=platform.resources,
        repository_def=platform.repository,
    ) as context:
        platform.repository.get_schedule_def(f"{TINY}_retraining").evaluate_tick(context)


def test_retrainings_of_a_schedule_of_a_person_and_of_a_fall_say_why_they_began(tracked: Platform):
    renewal = RenewalSection(quality="0 * * * *", cool_down_hours=0.0)
    short = applied(tracked.recipe.model_copy(update={"renewal": renewal}), ["run.steps=20", "checkpoint.every=10"])
    platform, first = tracked.with_training(short), {store.id for store in tracked.trainings.stores()}
    scheduled(platform)
    training_commands.start(short, platform.tiers, platform.tracking, BY, "to be sure")
    origin = {"renewal": "quality", "loss_now": 2.0}
    renew(short, "quality 0123456789ab", origin, platform.tiers, platform.tracking, platform.instance, BY)
    stores = [store for store in platform.trainings.stores() if store.id not in first]
    for store in stores:
        platform.advance(store, Action.DONE)
    names = {naming.of(store.read()).rpartition(", ")[2] for store in stores}
    assert names == {f"schedule: {SUNDAY.isoformat()}", "again: to be sure", "quality 0123456789ab"}
    query = "SELECT cause, training, sum(rank_hours), sum(money) FROM cost GROUP BY ALL"
    rows = account_tables.ask(stores, query, Prices("EUR", 2.0, 0.5))[1]
    assert {cause for cause, *_ in rows} == {"schedule", "again", "quality"}
    assert {training for _, training, *_ in rows} == {store.id for store in stores}
    assert all(hours > 0 and money == pytest.approx(2 * hours) for *_, hours, money in rows)
