"""`make check` can collect its tests: no pure test, and no fixture beside one, imports Dagster or torch."""

import subprocess
import sys

import pytest

from tests.test_files import ROOT

pytestmark = pytest.mark.slow


def test_the_pure_tests_are_collected_without_what_takes_seconds_to_import():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.pure",
        "--collect-only",
        "--quiet",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
