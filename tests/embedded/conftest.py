"""A home and small recipes for each test, and the certainty that no process is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.slipway import Slipway


@pytest.fixture
def slipway(tmp_path: Path) -> Iterator[Slipway]:
    own = Slipway(tmp_path)
    yield own
    assert own.end_all() == [], "processes left behind"
