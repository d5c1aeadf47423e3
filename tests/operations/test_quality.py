"""The quality watch: a former champion comes back where its bytes are whole, and a fall is acted on in any case."""

import os
import shutil
from pathlib import Path

import pytest

from slipway.assets.promotion.gate import Gate
from slipway.cli.models import gate_of
from slipway.operations import quality
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import FOLDER_TAG, Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import Promotions, history
from tests.cli.test_models import MODEL, promoted

FALL = "version 2: 2.1000 bits per byte, on record 1.9000: it has fallen"


@pytest.fixture
def gate(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Of a model of which two versions were the champion, one after the other."""
    home = Home(tmp_path / "home")
    home.root.mkdir()
    shutil.copyfile(database, home.root / "mlflow.db")
    for variable in ("SLIPWAY_RECIPES", "SLIPWAY_PLATFORM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SLIPWAY_HOME", str(home.root))
    model = Promotions(Registry(Tracking(uri=home.tracking_uri), home.durable), home.durable, MODEL)
    promoted(model, 10), promoted(model, 20)
    return gate_of(MODEL)


def test_a_former_champion_comes_back_with_the_fall_as_its_reason(gate: Gate):
    [former, _] = history(gate.tiers.durable_path, MODEL)
    assert quality.come_back(gate, former, FALL) == "version 1 is the champion again"
    last = history(gate.tiers.durable_path, MODEL)[-1]
    assert (last.version, last.by, last.why) == ("1", quality.BY, FALL)


def test_a_former_champion_whose_bytes_have_changed_does_not_come_back_and_the_watch_goes_on(gate: Gate):
    [former, _] = history(gate.tiers.durable_path, MODEL)
    os.truncate(gate.tiers.durable_path / former.tags[FOLDER_TAG] / "weights", 3)
    sentence = quality.come_back(gate, former, FALL)
    assert sentence.startswith("version 1 does not come back: ")
    assert "its bytes differ from the committed ones" in sentence
    assert len(history(gate.tiers.durable_path, MODEL)) == 2
