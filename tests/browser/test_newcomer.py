"""A newcomer has done the tutorial and looks around: what there is, what ran, and whether anybody is needed.

The pages are those of the tutorial's own instance, while it is up.
"""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from tests.browser.window import Window
from tests.embedded.slipway import MARK
from tests.embedded.tutorial import Reader, blocks

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
PATIENCE_SECONDS = 3000.0


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Somebody who has come to the champion, and has the instance up."""
    reader = Reader(tmp_path)
    until_the_champion = next(index for index, block in enumerate(blocks()) if "until slipway models show" in block)
    try:
        done = reader.types(blocks()[: until_the_champion + 1], PATIENCE_SECONDS)
        assert done.returncode == 0, done.stderr[-4000:]
        yield reader
        assert reader.types(["cd my-recipes", "slipway down"], PATIENCE_SECONDS).returncode == 0
    finally:
        for pid in processes.carrying({MARK: str(tmp_path)}):
            os.kill(pid, signal.SIGKILL)


def test_a_newcomer_finds_what_the_tutorial_has_made(reader: Reader, window: Window):
    look_around(f"http://127.0.0.1:{reader.port}", window)


def look_around(url: str, window: Window) -> None:
    """Open page after page, each by what stands on the one before, and read what it says."""
    window.open(f"{url}/slipway")
    window.until_shown("Trainings", "my-model")
    window.picture("pages", height=620)
    training = str(window.page.locator("#trainings code, code").first.inner_text())
    assert re.fullmatch(r"my-model-[0-9a-f]{12}", training)
    window.page.locator(f'a[href="/slipway/trainings/{training}"]').click()
    window.until_shown("Checkpoints", training)
    assert window.page.locator("canvas").count() >= 4
    assert "Traceback" not in window.text()
    window.picture("page-of-a-training", height=4000, above="#checkpoints")
    window.until_shown("passed every check and is the champion")
    window.open(f"{url}/slipway/morning")
    window.until_shown("Daily report", "Finished", training)
    assert window.page.title() == "Nothing to do" and window.page.locator(".red").count() == 0
    look_around_in_dagster(url, window, training)


def look_around_in_dagster(url: str, window: Window, training: str) -> None:
    """The same in Dagster: the lane up to the champion, the partition of the training, and what the gate said."""
    window.open(f"{url}/locations/slipway/asset-groups/my_model/lineage")
    window.until_shown("training", "evaluation", "champion")
    window.picture("asset-graph")
    window.open(f"{url}/assets/my_model/training?view=partitions&partition={training}")
    window.until_shown("finished at step")
    window.picture("training")
    window.open(f"{url}/assets/my_model/candidate?view=checks")
    window.until_shown("beats_champion")
    window.press("beats_champion")
    window.until_shown("Latest execution", "Passed")
    window.picture("gate", height=760)
