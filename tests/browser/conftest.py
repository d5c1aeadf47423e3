"""A window on an instance: `window` for the browser, `instance` for the platform that the drills use too.

pytest tests/browser --pictures docs/images     keeps the pictures that the tests take (`make screenshots`)
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import window as browser
from tests.browser.window import Window
from tests.drills.conftest import instance, mark, shared_instance

__all__ = ["instance", "mark", "shared_instance"]
PICTURES = "--pictures"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(PICTURES, type=Path, default=None, help="a folder for pictures of the pages")


@pytest.fixture
def window(request: pytest.FixtureRequest) -> Iterator[Window]:
    """A browser's window; the test is skipped where there is no browser."""
    program = browser.program()
    if program is None:
        pytest.skip(browser.NO_BROWSER)
    # Where the tests of all folders run, this one's options come too late to be known.
    with browser.opened(program, request.config.getoption(PICTURES, default=None)) as opened:
        yield opened
