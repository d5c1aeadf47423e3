"""The lock: what pyproject.toml asks for, with hashes, and without a word of where to get it."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements.install import wanted_torch
from requirements.lock import EXTRAS, FOLDER, PYPROJECT, names

pytestmark = pytest.mark.pure

FILES = (*EXTRAS, "torch")


def entries(name: str) -> list[str]:
    """The packages of a file of the lock, each with its hashes on one line; without comments."""
    text = re.sub(r"^ *#.*\n?", "", (FOLDER / f"{name}.txt").read_text(), flags=re.M)
    return [line for line in text.replace("\\\n", "").splitlines() if line]


def locked(name: str) -> list[Requirement]:
    """The packages of a file of the lock."""
    return [Requirement(entry.split(" --hash")[0]) for entry in entries(name)]


def requirements_of(name: str) -> list[Requirement]:
    """What pyproject.toml wants in a file of the lock."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    extras = [option.removeprefix("--extra=") for option in EXTRAS[name]]
    listed = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(text) for part in listed for text in part]


@pytest.mark.parametrize("name", FILES)
def test_each_package_has_one_version_and_its_hashes_and_no_place(name: str):
    pattern = r"[\w.-]+==[\w.]+( ; [^:/@]+?)? *( --hash=sha256:[0-9a-f]{64} *)+"
    assert entries(name) and [entry for entry in entries(name) if not re.fullmatch(pattern, entry)] == []


@pytest.mark.parametrize("name", EXTRAS)
def test_the_lock_has_what_pyproject_wants(name: str):
    versions = {
        (requirement.name, str(requirement.specifier)) for part in (name, "torch") for requirement in locked(part)
    }
    missing = {
        str(requirement)
        for requirement in requirements_of(name)
        if (canonicalize_name(requirement.name), str(requirement.specifier)) not in versions
    }
    assert missing == set(), "run `make lock`"


def test_a_larger_file_has_the_versions_of_the_smaller():
    trainer, platform, dev = (
        {str(requirement) for requirement in locked(name)} for name in ("trainer", "platform", "dev")
    )
    assert trainer < platform < dev


def test_torch_stands_apart_with_the_packages_of_its_builds_for_gpus():
    apart = names(FOLDER / "torch.txt")
    assert {"torch", "triton", "nvidia-nccl-cu13"} <= apart
    assert apart & names(FOLDER / "dev.txt") == set()


def test_torch_is_installed_in_the_version_of_pyproject():
    assert wanted_torch() in {str(requirement) for requirement in requirements_of("trainer")}
