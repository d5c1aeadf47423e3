"""docs/cleaning.md agrees with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from assets.datasets.cleaning import ngrams, pii, rules
from assets.datasets.cleaning.language import PREFIX, SCORE_LEAST
from recipes.cleaning import CleaningSection, RulesSection

pytestmark = pytest.mark.pure

PAGE = (Path(__file__).parents[4] / "docs" / "cleaning.md").read_text()


def example() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    section: dict[str, Any] = yaml.safe_load(block)["cleaning"]
    return section | {"mask": tuple(section["mask"]), "decontamination": section["decontamination"] | {"against": ()}}


def test_the_example_is_a_recipe_that_turns_every_rule_on():
    cleaning = CleaningSection.model_validate(example())
    assert list(rules.thresholds(cleaning.rules)) == list(RulesSection.model_fields) and set(cleaning.mask) == set(
        pii.FINDERS
    )


def test_the_table_has_every_rule_in_the_order_in_which_they_are_asked():
    assert re.findall(r"^\| `(\w+_at_\w+)`", PAGE, re.MULTILINE) == list(rules.RULES)


def test_the_values_are_those_that_the_rules_name():
    for name, threshold in CleaningSection.model_validate(example()).rules:
        assert f": {threshold:,g}." in (rules.RULES[name].__doc__ or "")


def test_the_numbers_in_it_are_those_of_the_code():
    for told in (f"{PREFIX} characters", f"score of {SCORE_LEAST}", f"{ngrams.PASSAGE} words in a row"):
        assert told in PAGE
    for s, told in ((0.7, "0.56"), (0.8, "0.92"), (0.9, "0.9996")):
        assert f"{1 - (1 - s**8) ** 14:.{len(told) - 2}f}" == told and told in PAGE
