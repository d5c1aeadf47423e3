"""A folder with copies of the sample recipes, which tests change."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from slipway.recipes.load import FurtherFaults, load
from slipway.recipes.problems import InvalidRecipes

DATASET = "datasets/python-stdlib.yaml"
TRAINING = "trainings/tiny-decoder.yaml"
SWEEP = "sweeps/tiny-decoder.yaml"
SAMPLES = Path(__file__).with_name("samples")


class Folder:
    """Recipes on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def edit(self, file: str, old: str, new: str) -> int:
        """Replace `old`, which occurs once; returns its line."""
        text = (self.path / file).read_text()
        assert text.count(old) == 1
        (self.path / file).write_text(text.replace(old, new))
        return text[: text.index(old)].count("\n") + 1

    def write(self, file: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        (self.path / file).write_bytes(data)

    def problems(self, environ: Mapping[str, str] | None = None, further: FurtherFaults | None = None) -> list[str]:
        """The problems, one sentence each, with the files relative to the folder."""
        with pytest.raises(InvalidRecipes) as caught:
            load(self.path, environ or {}, further)
        return str(caught.value).replace(f"{self.path}/", "").splitlines()


def copied(path: Path) -> Folder:
    """The sample recipes, copied to a folder."""
    shutil.copytree(SAMPLES, path, dirs_exist_ok=True)
    return Folder(path)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return copied(tmp_path)
