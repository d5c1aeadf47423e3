"""The wheel: one package, `slipway`, with all of its data; a user's files beside the recipes are not imported."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from slipway.trainer.base.paths import CODE
from tests.test_files import HOUSE

pytestmark = pytest.mark.slow

DATA = (
    "assets/datasets/cleaning/top_level_domains.txt",
    "deploy/chart/Chart.yaml",
    "deploy/embedded/dagster.yaml",
    "deploy/images/trainer/Dockerfile",
    "py.typed",
    "recipes/examples/datasets/imagenet.yaml",
    "recipes/trainings/tiny-decoder.yaml",
    "serving/front/page.html",
)
PLANTED = ("assets.py", "cli.py", "definitions.py", "random.py", "resources/__init__.py", "trainer.py")
"""Files of a user with names that our packages, or Python's modules, have too."""
VERBS = {"recipes check": ("recipes", "check"), "plan": ("plan", "tiny-decoder")}
OPENED = re.compile(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]+)"')


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built from a copy: a build leaves files in its folder."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in (*HOUSE, "slipway"):
        shutil.copytree(CODE / name, copy / name, symlinks=True, ignore=ignored)
    for name in ("definitions.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CODE / name, copy / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--quiet", "--wheel-dir", str(folder), str(copy)], check=True)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `slipway` of a new environment with the wheel, which has its dependencies from this one."""
    environment = tmp_path_factory.mktemp("environment")
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, and .pth files there, such as that of an editable install, are not read.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment / "bin" / "slipway"


def test_it_holds_one_package_with_its_data_as_files(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = {PurePosixPath(name) for name in archive.namelist()}
    assert sorted({name.parts[0] for name in names}) == ["slipway", f"{wheel.name.split('-py3')[0]}.dist-info"]
    modules = {path.relative_to(CODE).as_posix() for folder in HOUSE for path in (CODE / folder).rglob("*.py")}
    expected = {f"slipway/{name}" for name in (*modules, *DATA, "__init__.py", "definitions.py", "script.py")}
    assert expected - {str(name) for name in names} == set()


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    """A folder of files that have names of our packages, and that end the process that imports one."""
    folder = tmp_path / "mine"
    for name in PLANTED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("raise SystemExit('a file of the user was imported: ' + __file__)\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has set nothing for Python, with a home of this test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SLIPWAY", "COV"))}
    return {
        **inherited,
        "HOME": str(tmp_path),
        "SLIPWAY_HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_opens_no_file_of_the_users_that_has_a_modules_name(
    command: Path, tmp_path: Path, user_folder: Path, environment: dict[str, str], verb: tuple[str, ...]
):
    log = tmp_path / "opened"
    strace = ["strace", "-f", "--seccomp-bpf", "-s", "4096", "-e", "trace=open,openat", "-o", str(log)]
    done = subprocess.run(
        [*strace, str(command), *verb], cwd=user_folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    opened = {user_folder / path for path in OPENED.findall(log.read_text(errors="replace"))}
    assert command.parent.parent / "pyvenv.cfg" in opened, "the processes were watched"
    assert sorted(path for path in opened if user_folder in path.parents) == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_demo_runs_beside_files_of_the_users_that_have_modules_names(
    command: Path, user_folder: Path, environment: dict[str, str]
):
    done = subprocess.run([str(command), "demo"], cwd=user_folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "champion" in done.stdout
