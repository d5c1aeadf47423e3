"""docs/cleaning.md agrees with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.assets.datasets.cleaning import minhash, pii, rules
from slipway.assets.datasets.cleaning.word_hashes import PASSAGE
from slipway.recipes.cleaning import RULE_NAMES, CleaningSection
from slipway.serving.languages import SCORE_LEAST, WINDOW, WINDOWS

pytestmark = pytest.mark.pure

PAGE = (Path(__file__).parents[4] / "docs" / "cleaning.md").read_text()


def example() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    section: dict[str, Any] = yaml.safe_load(block)["cleaning"]
    return section | {
        "mask": tuple(section["mask"]),
        "languages": tuple(section["languages"]),
        "urls": {name: tuple(values) for name, values in section["urls"].items()},
        "licenses": tuple(section["licenses"]),
        "decontamination": section["decontamination"] | {"against": ()},
    }


def test_the_example_is_a_recipe_that_turns_every_rule_on():
    cleaning = CleaningSection.model_validate(example())
    assert list(cleaning.rules.thresholds()) == list(RULE_NAMES) and set(cleaning.mask) == set(pii.FINDERS)


def test_the_table_has_every_rule_in_the_order_in_which_they_are_asked():
    _, behind = PAGE.split("\n## Rules\n")
    assert re.findall(r"^\| `(\w+_at_\w+)`", behind, re.MULTILINE) == list(rules.RULES)


def test_the_values_are_those_that_the_rules_name():
    for name, threshold in CleaningSection.model_validate(example()).rules.thresholds().items():
        assert f": {threshold:,g}." in (rules.RULES[name].__doc__ or "")


def test_the_numbers_in_it_are_those_of_the_code():
    parts = f"{WINDOWS} parts of {WINDOW} characters"
    for phrase in (parts, f"score of {SCORE_LEAST}", f"{PASSAGE} words in a row"):
        assert phrase in PAGE


def test_the_table_of_bands_is_that_of_the_code():
    rows = re.findall(r"^\| (0\.\d) \| (\d+) of (\d+) \| (\S+) \| (\S+) \| (\S+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for similarity, bands, length, *shares in rows:
        shape, s = minhash.banding(float(similarity)), float(similarity)
        assert shape == (int(bands), int(length))
        assert shares == [f"{minhash.shared_band(similarity, *shape):.2f}" for similarity in (s, s + 0.1, s - 0.1)]
