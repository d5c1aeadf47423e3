"""A limit of time for a whole run of tests: `--within SECONDS` skips those that would begin later, each by its name.

CI has so much time and no more: on a slow machine it ends with what it has seen, and says what it has not.
"""

import time

import pytest

OPTION = "--within"
_BEGUN = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=float, metavar="SECONDS", help="skip each test that would begin later than this")


@pytest.hookimpl(tryfirst=True)  # before its fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    seconds: float | None = item.config.getoption(OPTION)
    if seconds is not None and time.monotonic() - _BEGUN > seconds:
        pytest.skip(f"the {seconds:.0f} s of this run are over")
