"""The images: linted, pinned, without root, with what they import and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cluster.render import DEPLOY
from deploy.cluster.requirements import requirements
from tests.test_structure import FLOORS, GROUND, ON_THE_WAY

ROOT = DEPLOY.parent
IMAGES = ("platform", "trainer")
WITH_S3FS = {"aiohttp", "botocore", "fsspec"}
"""What s3fs brings."""


def instructions(image: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions, each with what follows it."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "images" / image / "Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def copied(image: str) -> set[str]:
    """What an image takes from the repository."""
    sources = [said.split()[:-1] for what, said in instructions(image) if what == "COPY" and "--from" not in said]
    return {source for each in sources for source in each}


@pytest.mark.parametrize("image", IMAGES)
def test_the_linter_has_nothing_to_say(image: str):
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DEPLOY / "images" / image / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_the_base_must_be_said(image: str):
    said = instructions(image)
    assert ("ARG", "BASE") in said and {rest.split()[0] for what, rest in said if what == "FROM"} == {"${BASE}"}


@pytest.mark.parametrize("image", IMAGES)
def test_nobody_is_root_and_the_bytecode_is_there(image: str):
    said = instructions(image)
    assert said[-1] == ("USER", "1000:1000")
    compiled = [index for index, (_, rest) in enumerate(said) if "compileall" in rest]
    code = [index for index, (what, rest) in enumerate(said) if what == "COPY" and "--from" not in rest]
    assert len(compiled) == 1 and compiled[0] > max(code), "what is copied later would not be compiled"


def test_the_trainer_has_the_trainer_alone():
    assert copied("trainer") == {"pyproject.toml", "deploy/cluster/requirements.py", "trainer"}


def test_the_platform_has_what_the_definitions_import():
    code = (FLOORS["definitions.py"] | {"definitions.py"}) - {"deploy"}
    assert copied("platform") == code | {"pyproject.toml", "deploy/cluster/requirements.py"}


def test_what_is_copied_is_there_and_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert allowed == copied("platform") | copied("trainer")
    assert [each for each in allowed if not (ROOT / each).exists()] == []


def test_the_trainer_installs_what_it_imports():
    installed = {each.split("==")[0] for each in requirements("trainer", ROOT / "pyproject.toml")}
    assert installed == (GROUND | ON_THE_WAY | {"nvidia-ml-py"}) - WITH_S3FS


@pytest.mark.parametrize("image", IMAGES)
def test_every_version_is_pinned(image: str):
    listed = requirements(image, ROOT / "pyproject.toml")
    assert listed and [each for each in listed if not re.fullmatch(r"[\w-]+==[\w.]+", each)] == []
