"""A launcher's surroundings: every process of a test is marked."""

import pytest

from tests.conftest import Marked


@pytest.fixture(autouse=True)
def every_process_is_marked(marked: Marked) -> None:
    """Every launcher test starts processes, so each is marked."""
