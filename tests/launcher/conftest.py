"""A launcher's surroundings: every process of a test is marked."""

import pytest

from tests.conftest import Marked


@pytest.fixture(autouse=True)
def every_process_is_marked(marked: Marked) -> None:
    """A launcher test starts processes, whether or not it says so."""
