"""The images, built for real and run as pods run them: user 1000, a read-only root, nothing of this machine."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from requirements.install import wanted_torch
from tests.deploy.image_builder import BuiltImage, ImageBuilder, layers_folder, why_not
from tests.deploy.test_lock import locked
from tests.trainer.conftest import STEPS, Training

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(5400),  # the first builds fetch all packages
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

REVISION = "0123456789abcdef0123456789abcdef01234567"
WITHOUT_BYTECODE = re.compile(r"py312_intrinsics")
SECRET = re.compile(r"(^|/)(\.netrc|\.npmrc|\.pypirc|pip\.conf|credentials|id_\w+|\.git|\.env|.*_history)$")
BUILD_LEFT = ("var/lib/apt/lists", "var/cache/apt/archives", "root/.cache", "tmp", "build")


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> ImageBuilder:
    return ImageBuilder(layers_folder(tmp_path_factory), REVISION)


@pytest.fixture(scope="module")
def trainer(builder: ImageBuilder) -> Iterator[BuiltImage]:
    with contextmanager(builder.build)("trainer") as built:
        yield built


@pytest.fixture(scope="module")
def platform(builder: ImageBuilder) -> Iterator[BuiltImage]:
    with contextmanager(builder.build)("platform") as built:
        yield built


@pytest.fixture(params=["trainer", "platform"])
def image(request: pytest.FixtureRequest) -> BuiltImage:
    built: BuiltImage = request.getfixturevalue(request.param)
    return built


def test_the_image_carries_its_revision_and_is_not_root(image: BuiltImage):
    assert image.environment["SLIPWAY_REVISION"] == REVISION
    assert image.config["Labels"]["org.opencontainers.image.revision"] == REVISION
    assert image.config["User"] == "1000:1000"


def test_every_module_has_its_bytecode(image: BuiltImage):
    sources = (path for path in (image.mounted / "opt").rglob("*.py") if path.parent.name != "bin")  # of scripts, none
    modules = [path for path in sources if not WITHOUT_BYTECODE.search(path.name)]
    tag = image.output_of("python", "-c", "import sys; print(sys.implementation.cache_tag)")
    cached = [module.parent / "__pycache__" / f"{module.stem}.{tag}.pyc" for module in modules]
    assert modules and [str(path) for path in cached if not path.exists()] == []


def test_the_image_has_the_versions_of_the_lock_and_no_others(image: BuiltImage):
    name = image.config["Labels"]["org.opencontainers.image.title"].removeprefix("slipway ")
    listed = image.output_of("python", "-m", "pip", "list", "--format=freeze").split()
    installed = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in listed}
    python = image.output_of("python", "-c", "import platform; print(platform.python_version())")
    environment = {"python_full_version": python, "python_version": python.rpartition(".")[0]}
    requirements = [
        requirement
        for requirement in locked(name)
        if requirement.marker is None or requirement.marker.evaluate(environment)
    ]
    assert installed.pop(canonicalize_name("torch")).split("+")[0] == wanted_torch().split("==")[1]
    apart = {"pip", *(canonicalize_name(requirement.name) for requirement in locked("torch"))}
    assert {name: version for name, version in installed.items() if name not in apart} == {
        canonicalize_name(requirement.name): str(requirement.specifier)[2:] for requirement in requirements
    }


def test_nothing_of_the_build_and_no_secret_is_left(image: BuiltImage):
    build_files = [
        str(file) for folder in BUILD_LEFT for file in (image.mounted / folder).rglob("*.*") if file.is_file()
    ]
    assert build_files == []
    files = (path.relative_to(image.mounted) for top in ("opt", "root", "home", "etc") for path in walk(image, top))
    assert [str(path) for path in files if SECRET.search(str(path)) and (image.mounted / path).stat().st_size] == []


def walk(image: BuiltImage, top: str) -> Iterator[Path]:
    """The files below one folder of the image, less the packages' own."""
    return (path for path in (image.mounted / top).rglob("*") if path.is_file() and "site-packages" not in path.parts)


def test_another_code_leaves_the_layers_below_it_as_they_are(builder: ImageBuilder, trainer: BuiltImage):
    """A node that has one release pulls of the next what differs, and that is not torch."""
    with contextmanager(ImageBuilder(builder.folder, "f" * 40).build)("trainer") as later:
        assert later.environment["SLIPWAY_REVISION"] == "f" * 40
        assert later.layers[:4] == trainer.layers[:4], "the base, the compiler, the packages, the code"


def test_the_trainer_trains_on_a_read_only_root(trainer: BuiltImage, tmp_path: Path):
    training = Training(tmp_path, "in an image")
    for path in [tmp_path, *tmp_path.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
    done = trainer.run("python", "-m", "slipway.trainer", str(training.config), shared=tmp_path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    [*_, last] = training.commits()
    assert last.step == STEPS


def test_the_command_and_the_definitions_load_in_the_platform(platform: BuiltImage):
    assert "check" in platform.output_of("python", "-m", "slipway.cli", "recipes", "--help")
    names = platform.output_of(
        "python",
        "-c",
        "import slipway; import slipway.definitions; print([each.name for each in slipway.definitions.defs.sensors])",
    )
    assert "job_watch" in names
