"""The verdicts of gates are in the morning's report: a rejection is no failure, what waits for an approval is red."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.assets import keys
from slipway.resources import links
from slipway.resources.daily_report import reading
from slipway.resources.daily_report import report as morning
from slipway.resources.daily_report.report import ReportItem
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions import promotion_holds
from slipway.resources.promotions.promotion import Judgement, Promotion, Promotions
from slipway.trainer.base import codec
from tests.resources.daily_report.nights import SeededNight

CANDIDATE, CHAMPION = "c" * 64, "d" * 64


@pytest.fixture
def night(tmp_path: Path, database: Path) -> SeededNight:
    """A night in a home with MLflow's database."""
    shutil.copyfile(database, tmp_path / "mlflow.db")
    return SeededNight(Home(tmp_path))


def judged(night: SeededNight, **fields: Any) -> Path:
    """The gate recorded this judgement; the folder of the model."""
    values = {"checks": {"beats_unigrams": True, "beats_champion": True}, "champion": "", "by": "run 1", **fields}
    tracking = Tracking(uri=night.home.tracking_uri)
    promotions = Promotions(Registry(tracking, night.durable), night.durable, "tiny-model")
    promotions.record(Judgement("tiny-model", CANDIDATE, **values))
    return promotions.folder


def items(night: SeededNight) -> list[ReportItem]:
    return list(morning.report(reading.read_facts(night.durable, night.since)).items)


def test_a_rejection_is_reported_with_the_checks_that_were_not_passed_and_is_not_red(night: SeededNight):
    judged(night, checks={"beats_unigrams": True, "beats_champion": False})
    [only] = items(night)
    assert (only.cause, only.subject, only.needs_person) == ("gate rejection", "model tiny-model", False)
    assert "did not pass: beats champion" in only.what and only.done == "the champion stays"


def test_a_candidate_that_must_be_approved_is_red_until_a_person_says_yes_or_no(night: SeededNight):
    folder = judged(night, approval_hours=24.0)
    [only] = items(night)
    assert only.needs_person and "slipway models approve tiny-model" in only.todo
    promotion_holds.approve(folder, CANDIDATE, promotion_holds.Approval(False, "ada", "it repeats itself"))
    [only] = items(night)
    assert not only.needs_person and "ada refused it" in only.what
    promotion_holds.approve(folder, CANDIDATE, promotion_holds.Approval(True, "ada", "it is better now"))
    assert items(night) == []


def test_a_freeze_and_a_cool_down_hold_a_candidate_and_need_nobody(night: SeededNight):
    folder = judged(night, approval_hours=24.0)
    promotion_holds.set_freeze(folder, "ada", "the launch is on Friday")
    [only] = items(night)
    assert only.cause == "held back" and not only.needs_person and "frozen by ada" in only.what


def test_a_candidate_that_could_not_be_judged_waits_for_a_person_until_there_is_another_champion(night: SeededNight):
    folder = judged(night, undecided="the champion cannot be compared with: its snapshot is gone", checks={})
    [only] = items(night)
    assert only.cause == "not judged" and only.needs_person
    champion(folder)
    assert items(night) == []


def test_a_damaged_checkpoint_is_red_when_it_is_the_champion_s_and_no_whole_copy_is_left(night: SeededNight):
    commit = night.damaged_checkpoint("damaged")
    champion(night.durable / "models" / "tiny-model", commit.manifest)
    [only] = items(night)
    assert only.needs_person and only.todo.startswith("the champion has no intact copy left")


def test_links_lead_to_the_keys_and_partitions_of_the_asset_graph():
    key = keys.key("tiny-decoder", "checkpoint")
    partition = keys.checkpoint_partition("tiny-decoder-1a", 100)
    assert links.checkpoint("tiny-decoder", "tiny-decoder-1a", 100) == (
        f"/assets/{'/'.join(key.path)}?view=partitions&partition={partition}"
    )
    assert links.node("node-1").startswith(f"/assets/{'/'.join(keys.PREFLIGHT.path)}?")


def champion(folder: Path, manifest: str = CHAMPION) -> None:
    promotion = Promotion(folder.name, "1", manifest, None, "x", {}, "run 1", "it passed", time.time())
    assert codec.create_only(folder / "promotions" / "000001.json", promotion, "slipway.promotion/1")
