"""The README's "Your own recipes" does what it says, in a terminal that knows nothing of Slipway."""

import os
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.embedded.slipway import ROOT
from tests.embedded.tutorial import Reader

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PATIENCE_SECONDS = 600.0
STAYS = "slipway dev"
"""The last command, which `test_dev` tests: it ends when somebody ends it."""


def test_the_commands_lead_from_nothing_to_a_recipe_that_fits_here(tmp_path: Path):
    [block] = [
        token.content
        for token in MarkdownIt().parse((ROOT / "README.md").read_text())
        if "init my-recipes" in token.content
    ]
    *commands, last = block.splitlines()
    assert last.startswith(STAYS)
    reader, venv = Reader(tmp_path), Path(sys.executable).parent
    (tmp_path / ".venv").symlink_to(venv.parent)
    others = [folder for folder in os.environ["PATH"].split(":") if Path(folder) != venv]
    reader.environ["PATH"] = ":".join(others)
    done = reader.types(commands, PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stdout + done.stderr
    assert "trainings/my-decoder: " in done.stdout and "needed" in done.stdout
