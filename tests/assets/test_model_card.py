"""The model card says what is on record, each value whole, and what each check compared."""

import pytest

from slipway.assets import model_card
from slipway.resources.promotions.model_record import ModelRecord
from slipway.resources.promotions.promotion import Judgement, Promotion

pytestmark = pytest.mark.pure
RECORD = ModelRecord(
    "tiny",
    "ab" * 32,
    data={"dataset": "texts", "step": 150, "sources": {"digest": "c" * 64, "description": "a | b"}, "epoch": None},
    topology={"world": 2, "incarnations": [{"token": "1", "nodes": ["node-0", "node-1"]}, {"token": "2", "nodes": []}]},
    state={"bytes": 508_925},
    outcome={"loss": 0.55, "bits_per_byte": 0.2896651},
)
CHECKS = {"beats_champion": {"difference": -0.01, "interval_high": 0.004, "margin": 0.02}, "limits": {"note": "none"}}
JUDGEMENT = Judgement(
    "tiny", "ab" * 32, "cd" * 32, {"beats_champion": True, "limits": False}, "run 1", figures={"checks": CHECKS}
)


def test_it_begins_with_what_the_model_is():
    sentence = "step 150 on dataset texts, 0.2897 bits per byte on its validation split, 0.5 MB on disk."
    assert model_card.of(RECORD, None).splitlines()[2] == f"Checkpoint `{'ab' * 32}`: {sentence}"


def test_sections_in_sections_are_rows_of_their_own_and_nothing_is_cut():
    card = model_card.of(RECORD, None)
    assert f"| sources.digest | {'c' * 64} |" in card and "| sources.description | a \\| b |" in card
    assert "| incarnations.1.nodes | node-0, node-1 |" in card and "| incarnations.2.token | 2 |" in card
    assert "epoch" not in card.split("## Not known")[0]


def test_each_check_says_what_it_compared():
    card = model_card.of(RECORD, JUDGEMENT)
    assert "- beats_champion: passed (difference -0.01, interval_high 0.004, margin 0.02)" in card
    assert "- limits: not passed (none)" in card and "against champion `cdcdcdcdcdcd`" in card


def test_it_lists_its_deployments_and_what_is_not_known():
    promotion = Promotion("tiny", "3", "ab" * 32, None, "", {}, "somebody", "it passed", 0.0)
    card = model_card.of(RECORD, None, [promotion])
    assert "- version 3 became champion, by somebody: it passed" in card
    assert "`code.revision`" in card.split("## Not known")[1]
