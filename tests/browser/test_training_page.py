"""A person looks at a training while it runs: what Dagster shows of it, its page, and what a fault looks like there."""

import os
import signal

import pytest
from playwright.sync_api import expect

from slipway.assets import keys
from slipway.resources.trainings.status import HANGING
from tests.browser.window import Window
from tests.drills import process_table, small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
PATIENCE = 120_000


def test_a_running_training_is_a_page_that_is_always_true(instance: Instance, window: Window):
    training = instance.propose(small_recipes.PAIR, "a page", steps=5000)
    instance.start_as_a_sensor_does(training)
    wait_until(training.commits, "a checkpoint is committed")
    key = keys.key(small_recipes.PAIR, "training")

    def is_shown_with_a_loss() -> bool:
        return any("best_loss" in event.metadata for event in instance.observations(key, training.id))

    wait_until(is_shown_with_a_loss, "the event log says where it stands")
    window.open(f"{instance.url}/assets/{'/'.join(key.path)}")
    window.until_shown("standing", "report", "best_loss")
    window.open(f"{instance.url}/slipway/trainings/{training.id}")
    status_text, page = window.page.locator("#standing p").first, window.page
    expect(status_text).to_contain_text("Running, step", timeout=PATIENCE)
    before = status_text.inner_text()
    expect(status_text).not_to_have_text(before, timeout=PATIENCE)  # without a click, the page goes on
    assert page.locator("canvas").count() >= 4
    window.picture("running-training", height=1300)
    stopped = process_table.ranks(training.id)[1].pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        expect(status_text).to_contain_text("Hanging for", timeout=PATIENCE)
        assert page.title().startswith(HANGING)
    finally:
        os.kill(stopped, signal.SIGCONT)
    training.want("stop", "drill", "it was seen")
    expect(status_text).to_contain_text("resume goes on from step", timeout=PATIENCE)
    wait_until(lambda: training.id not in instance.open_trainings(), "the training has stopped")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "a phone need not scroll to the side"
    window.open(f"{instance.url}/slipway")
    window.until_shown(training.id)
