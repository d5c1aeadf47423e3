"""What `make install` and the images install of torch, by the settings of pip."""

import os
import zipfile
from pathlib import Path

import pytest

from requirements.install import build_of


@pytest.mark.parametrize("versions, chosen", [(["2.0"], "2.0"), (["2.0", "2.0+cpu"], "2.0+cpu")])
def test_a_machine_chooses_its_build_of_torch_by_the_settings_of_pip(tmp_path: Path, versions: list[str], chosen: str):
    for version in versions:
        write_wheel(tmp_path, version)
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    assert build_of("torch==2.0", {**os.environ, **settings}) == chosen


def write_wheel(folder: Path, version: str) -> None:
    """A wheel of a package `torch` without content."""
    info = f"torch-{version}.dist-info"
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
