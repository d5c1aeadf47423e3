"""The limit of time for a whole run: what would begin later is skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("within", "outcome"), [(0, "2 skipped"), (600, "2 passed")])
def test_a_test_that_would_begin_after_the_limit_is_skipped(tmp_path: Path, within: int, outcome: str):
    (tmp_path / "test_two.py").write_text("def test_first(): ...\n\ndef test_second(): ...\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.time_limit", "--within", str(within)]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert outcome in done.stdout, done.stdout + done.stderr
