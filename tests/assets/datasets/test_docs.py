"""The documentation of datasets names every reason for which something is not read."""

from pathlib import Path
from typing import get_args

import pytest

from slipway.assets.datasets.reading.document import LOSES_THE_REST, NO_TEXT, REMEDIES, Reason
from slipway.recipes.dataset import ReadingSection

pytestmark = pytest.mark.pure
DOCS = Path(__file__).parents[3] / "docs"


def test_each_reason_is_explained():
    explained = " ".join((DOCS / "datasets.md").read_text().split())
    assert [reason for reason in get_args(Reason) if f"`{reason}`" not in explained] == []
    assert {*REMEDIES, *LOSES_THE_REST, *NO_TEXT} <= set(get_args(Reason))


def test_each_field_of_reading_is_in_the_table_of_recipes():
    table = (DOCS / "recipes.md").read_text()
    fields = set(ReadingSection.model_fields) - {"metadata"}
    assert [field for field in sorted(fields) if f"`reading.{field}`" not in table] == []
