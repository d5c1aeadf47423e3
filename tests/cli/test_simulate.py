"""The simulation by the command: a summary for people, JSON for scripts, one sentence for a wrong field."""

import json

from tests.cli.conftest import Call


def test_a_simulation_says_the_effective_time_and_what_each_improvement_buys(slipway: Call):
    lines = slipway("simulate", "1024", "days=54").out.splitlines()
    assert lines[0].startswith("played") and "1,024 GPUs" in lines[0]
    assert any(line.startswith("effective time") for line in lines)
    assert any(line.startswith("half the time to detect") for line in lines)


def test_the_seed_decides_and_json_has_all_of_it(slipway: Call):
    one, same, other = (json.loads(slipway("simulate", "16384", "--seed", n, "--json").out) for n in ("1", "1", "2"))
    assert one == same != other
    assert 0.9 < one["ettr"] < 1 and one["scenario"]["gpus"] == 16_384 and one["improvements"]


def test_a_field_that_does_not_exist_is_one_sentence(slipway: Call):
    assert slipway("simulate", "1024", "stal=1").err.startswith("slipway: stal=1: found the field 'stal', expected one")
