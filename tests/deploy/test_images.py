"""The images: linted, without root, with what they import and nothing else."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from requirements.lock import names
from slipway.deploy.cluster.render import DEPLOY

ROOT = DEPLOY.parent
IMAGES = ("platform", "trainer")
INSTALL = "requirements/install.py"
PACKAGE = ("slipway/__init__.py", "slipway/script.py")
"""What the package has beside links."""


def instructions(image: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with what follows it."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "images" / image / "Dockerfile").read_text(), flags=re.M).replace("\\\n", "")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def copied(image: str) -> set[str]:
    """What an image takes from the repository."""
    sources = [rest.split()[:-1] for what, rest in instructions(image) if what == "COPY" and "--from" not in rest]
    return {source for sources_of_line in sources for source in sources_of_line}


def code_of(image: str) -> set[str]:
    """The packages and modules that an image takes from the repository."""
    return {source for source in copied(image) if not source.startswith("requirements/")}


def imported(sources: set[str]) -> set[str]:
    """The packages that these packages and modules import, wherever in them: ours by their folders, others by names."""
    files = [path for source in sources for path in ([ROOT / source] if source.endswith(".py") else python(source))]
    return {package for file in files for package in imports(file)} - set(sys.stdlib_module_names)


def python(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(file: Path) -> set[str]:
    """The packages that a file imports."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {
        f"{node.module}.{alias.name}" for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return {package_of(name.split(".")) for name in named}


def package_of(parts: list[str]) -> str:
    """The folder of ours that a dotted name begins in, or the top-level package."""
    return parts[1] if parts[0] == "slipway" and parts[1:] and (ROOT / parts[1]).is_dir() else parts[0]


@pytest.mark.parametrize("image", IMAGES)
def test_the_linter_finds_nothing(image: str):
    linter = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([linter, DEPLOY / "images" / image / "Dockerfile"], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("image", IMAGES)
def test_the_base_has_no_default(image: str):
    lines = instructions(image)
    assert ("ARG", "BASE") in lines and {rest.split()[0] for what, rest in lines if what == "FROM"} == {"${BASE}"}


@pytest.mark.parametrize("image", IMAGES)
def test_the_user_is_not_root_and_the_bytecode_is_compiled(image: str):
    lines = instructions(image)
    assert lines[-1] == ("USER", "1000:1000")
    packages, own = (
        [index for index, (_, rest) in enumerate(lines) if "compileall" in rest and rest.endswith(folder)]
        for folder in ("/opt/venv/lib", "/opt/slipway")
    )
    copied_code = [
        index
        for index, (what, rest) in enumerate(lines)
        if what == "COPY" and "--from" not in rest and "requirements/" not in rest
    ]
    assert len(packages) == len(own) == 1 and own[0] > max(copied_code), "what is copied later would not be compiled"
    assert packages[0] < min(copied_code), "another code would make the layer of the packages anew"


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_installs_its_file_of_the_lock(image: str):
    assert copied(image) - code_of(image) == {INSTALL, "requirements/torch.txt", f"requirements/{image}.txt"}
    assert [rest for what, rest in instructions(image) if what == "RUN" and f"{INSTALL} {image} " in rest]


def test_the_trainer_has_the_trainer_alone():
    assert code_of("trainer") == {*PACKAGE, "trainer"}


def test_the_platform_has_what_the_definitions_and_the_command_import():
    own = {path.name for path in ROOT.iterdir() if path.is_dir()}
    needed, reached = set[str](), {"definitions.py", "cli", "deploy/embedded"}
    while needed != reached:
        needed, reached = reached, reached | imported(reached) & own - {"deploy", "slipway"}
    assert code_of("platform") - {"deploy/__init__.py", *PACKAGE} == needed


@pytest.mark.parametrize("image", IMAGES)
def test_all_code_is_copied_into_the_one_package(image: str):
    targets = {
        source: rest.split()[-1]
        for what, rest in instructions(image)
        if what == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
        if source in code_of(image)
    }
    assert {
        source: target
        for source, target in targets.items()
        if f"{target}{Path(source).name if target.endswith('/') else ''}"
        != f"/opt/slipway/slipway/{source.removeprefix('slipway/')}"
    } == {}
    assert not [source for source in targets if (ROOT / source).is_symlink()], "a copied link would lead nowhere"


def test_what_is_copied_is_there_and_not_ignored():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    everything = copied("platform") | copied("trainer")
    assert allowed == {"requirements" if source.startswith("requirements/") else source for source in everything}
    assert [source for source in everything if not (ROOT / source).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
def test_an_image_installs_what_its_code_imports(image: str):
    code = code_of(image)
    foreign = imported(code) - {source.split("/")[0].removesuffix(".py") for source in code}
    installed = names(ROOT / "requirements" / f"{image}.txt") | {"torch"}
    providers = packages_distributions()
    missing = {
        package for package in foreign if not installed & {canonicalize_name(name) for name in providers[package]}
    }
    assert foreign and missing == set()


def test_the_trainer_has_the_libraries_that_nccl_opens_for_rdma():
    installed = {word for what, rest in instructions("trainer") if what == "RUN" for word in rest.split()}
    assert {"libibverbs1", "ibverbs-providers", "librdmacm1"} <= installed
