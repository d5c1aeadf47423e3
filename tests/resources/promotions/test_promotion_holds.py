"""What holds a candidate back that passed: a freeze, a missing approval, a cool-down. Nothing holds a rollback."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from slipway.resources import identity
from slipway.resources.promotions import promotion_holds
from slipway.resources.promotions.promotion_holds import Approval
from slipway.trainer.base import codec
from slipway.trainer.base.units import HOUR

pytestmark = pytest.mark.pure
NOW = 1_000_000.0


@dataclass(frozen=True)
class Passed:
    """A judgement of a candidate that passed."""

    candidate: str = "a" * 64
    approval_hours: float = 0.0
    cool_down_hours: float = 0.0
    rollback: bool = False


@dataclass(frozen=True)
class DatedPromotion:
    """A promotion."""

    at: float


def hold_reason(folder: Path, judgement: Passed, *promotions: DatedPromotion) -> str:
    return promotion_holds.reason(folder, judgement, promotions, NOW)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny").mkdir()
    return tmp_path / "tiny"


def test_nothing_holds_a_candidate_that_needs_nothing(folder: Path):
    assert hold_reason(folder, Passed(), DatedPromotion(NOW - 1)) == ""


def test_a_freeze_holds_every_promotion_and_says_by_whom_and_why(folder: Path):
    promotion_holds.set_freeze(folder, "anna", "the launch")
    assert hold_reason(folder, Passed()).startswith("model tiny is frozen by anna: the launch")
    promotion_holds.thaw(folder)
    assert hold_reason(folder, Passed()) == ""


def test_a_second_freeze_keeps_the_first_reason(folder: Path):
    promotion_holds.set_freeze(folder, "anna", "the launch")
    assert promotion_holds.set_freeze(folder, "ben", "another").by == "anna"


def test_a_damaged_freeze_is_no_permission(folder: Path):
    (folder / "freeze.json").write_bytes(b"{")
    with pytest.raises(codec.UndecodableRecord):
        hold_reason(folder, Passed())


def test_nothing_holds_a_rollback(folder: Path):
    promotion_holds.set_freeze(folder, "anna", "the launch")
    assert hold_reason(folder, Passed(approval_hours=1, cool_down_hours=5, rollback=True), DatedPromotion(NOW)) == ""


def test_a_candidate_that_needs_an_approval_waits_for_it_and_then_for_no_longer_than_it_counts(folder: Path):
    needs = Passed(approval_hours=2)
    assert "a person must approve it: slipway models approve tiny VERSION" in hold_reason(folder, needs)
    promotion_holds.approve(folder, needs.candidate, Approval(True, "anna", "read it", NOW - HOUR))
    assert hold_reason(folder, needs) == ""
    assert promotion_holds.reason(folder, needs, [], NOW + 2 * HOUR).startswith(
        "the approval by anna is older than 2 h"
    )


def test_what_a_person_says_last_counts(folder: Path):
    needs = Passed(approval_hours=2)
    promotion_holds.approve(folder, needs.candidate, Approval(True, "anna", "read it", NOW))
    promotion_holds.approve(folder, needs.candidate, Approval(False, "ben", "it swears", NOW))
    assert hold_reason(folder, needs) == "ben refused it: it swears"


def test_an_approval_of_another_checkpoint_does_not_count(folder: Path):
    promotion_holds.approve(folder, "b" * 64, Approval(True, "anna", "read it", NOW))
    assert "a person must approve it" in hold_reason(folder, Passed(approval_hours=2))


def test_a_cool_down_holds_the_next_promotion_for_its_hours(folder: Path):
    assert "0.5 h are left" in hold_reason(folder, Passed(cool_down_hours=1), DatedPromotion(NOW - HOUR / 2))
    assert hold_reason(folder, Passed(cool_down_hours=1), DatedPromotion(NOW - HOUR)) == ""


@dataclass(frozen=True)
class Launched:
    """A run of Dagster."""

    run_id: str
    tags: dict[str, str]


def test_a_run_is_of_the_sensor_or_the_schedule_that_started_it():
    assert identity.of_run(Launched("1", {"dagster/sensor_name": "promotions"})) == "sensor promotions, run 1"
    assert identity.of_run(Launched("2", {"dagster/schedule_name": "nightly"})) == "schedule nightly, run 2"
    assert identity.of_run(Launched("3", {})) == "run 3"
