"""A lane of pictures: the same graph trains, evaluates, judges and promotes a classifier; a decoder is refused."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.promotion.evaluation import evaluate
from slipway.assets.promotion.policy_checks import BEATS_CHAMPION, BEATS_UNIGRAMS, CHECKS
from slipway.assets.training import specification
from slipway.recipes.training import ModelRecipe
from slipway.resources.trainings.store import TrainingStore
from tests.assets.datasets import digits
from tests.conftest import Marked
from tests.sensors.conftest import UNCAPTURED
from tests.sensors.platform import Platform, write_recipes

MODEL = {"kind": "resnet", "blocks": [1, 1], "width": 8, "stem": "small"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits.make_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def platform(
    tmp_path: Path, corpus: Path, database: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Platform]:
    """One whose training is a residual network on digits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    write_recipes(tmp_path / "recipes")
    recipe = tmp_path / "recipes/trainings/tiny.yaml"
    changed = {
        "dataset": "digits",
        "model": MODEL,
        "batch": {"sequences": 64, "micro": 64},
        "optimizer": {"learning_rate": 0.02},
        "run": {"steps": 40},
        "checkpoint": {"every": 20},
    }
    recipe.write_text(yaml.safe_dump({**yaml.safe_load(recipe.read_text()), **changed}, sort_keys=False))
    dataset = {"slipway": "dataset/1", "description": "Digits", "owner": "team:data", "split": {"validation": 0.2}}
    images = {"height": 8, "width": 8, "channels": 1, "shard_megabytes": 0.008}
    source = {"kind": "directory", "path": str(corpus)}
    described = {**dataset, "source": source, "images": images}
    (tmp_path / "recipes/datasets/digits.yaml").write_text(yaml.safe_dump(described, sort_keys=False))
    (tmp_path / "recipes/sweeps/tiny-search.yaml").unlink()
    (tmp_path / "dagster").mkdir()
    with dg.instance_for_test(UNCAPTURED, temp_dir=str(tmp_path / "dagster")) as instance:
        picture_platform = Platform(tmp_path, instance)
        digits.build(picture_platform.recipes.datasets["digits"], picture_platform.home.durable)
        shutil.copyfile(database, picture_platform.home.root / "mlflow.db")
        yield picture_platform


def trained(platform: Platform) -> TrainingStore:
    store = platform.start_training()
    platform.advance(store)
    evaluate(store.read(), store.commits(), platform.measuring)
    return store


@pytest.mark.slow
def test_a_classifier_that_beats_chance_becomes_the_champion(platform: Platform) -> None:
    """Its bar is the entropy of the classes, and it is ranked by its loss."""
    store = trained(platform)
    assert platform.materialize([keys.key("tiny", "training")], store.id).success
    result = platform.materialize([keys.key("tiny", "candidate"), keys.key("tiny", "champion")], store.id)
    assert result.success
    checks = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert {name: check.passed for name, check in checks.items()} == dict.fromkeys(CHECKS, True)
    assert BEATS_CHAMPION in checks
    # Ten classes, all but equally frequent: ln 10 = 2.303.
    assert checks[BEATS_UNIGRAMS].metadata["unigram_entropy"].value == pytest.approx(2.30, abs=0.02)
    [materialization] = platform.materializations("champion", store.id)
    assert materialization.metadata["step"].value == 40
    assert "bits_per_byte" not in materialization.metadata


def test_a_decoder_is_refused_for_a_snapshot_of_pictures_before_anything_starts(platform: Platform) -> None:
    """Also where the recipe was checked against what the dataset held before."""
    shape = {"layers": 1, "width": 8, "heads": 1, "kv_heads": 1, "hidden": 8}
    changed = {"model": shape, "batch": {"sequences": 4, "length": 8, "micro": 4}}
    decoder = ModelRecipe.model_validate({**platform.recipe.model_dump(mode="json"), **changed}, strict=False)
    current = pointer.current(platform.home.durable, "digits")
    assert current is not None
    with pytest.raises(ValueError, match=r"model\.kind: found 'decoder', expected a model that reads pictures"):
        specification(decoder, current, platform.tiers)
