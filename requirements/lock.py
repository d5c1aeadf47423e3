"""Writes the lock from pyproject.toml: `make lock`, or `make lock UPGRADE=1` for the newest versions that it allows.

    trainer.txt     what a node of a training needs
    platform.txt    that, and what the control plane needs
    dev.txt         that, and what a checkout needs
    torch.txt       torch, and what only its builds for GPUs need

Each package stands there with its version and the hashes of all its files, for every Python and processor that the
project supports. No package index is named: pip asks the one it is configured with. A version that was locked before
stays as long as pyproject.toml allows it. install.py says why torch stands apart.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).parent
PYPROJECT = FOLDER.parent / "pyproject.toml"
_PLATFORM = ["--extra=platform", "--extra=serving", "--extra=engine"]  # one image for runs, the front and workers
EXTRAS = {"trainer": [], "platform": _PLATFORM, "dev": [*_PLATFORM, "--extra=dev"]}
"""Which extras of pyproject.toml each file of the lock holds."""
OPTIONS = [
    "--quiet",
    "--generate-hashes",
    "--only-binary=:all:",  # install.py builds nothing
    "--python-version=3.11",  # the oldest that the project supports
    "--annotation-style=line",
    "--custom-compile-command=make lock",
]


def main(upgrade: bool) -> None:
    """Resolve everything together once, then write each file with the versions found."""
    with TemporaryDirectory() as folder:
        known = Path(folder) / "known.txt"
        if not upgrade:
            known.write_text("".join((FOLDER / f"{name}.txt").read_text() for name in ("dev", "torch")))
        resolve(known, known, "--universal", *EXTRAS["dev"])
        every_build, of_gpus = torch_needs(known)
        for name, extras in EXTRAS.items():
            write(name, known, of_gpus | {"torch"}, extras)
        write("torch", known, every_build - {"torch"}, [])


def torch_needs(known: Path) -> tuple[set[str], set[str]]:
    """What a node needs with any build of torch, and what it needs besides with a build for GPUs.

    torch asks for the packages of CUDA on Linux alone; its build for Windows is one for CPUs.
    """
    linux, windows = known.with_name("linux.txt"), known.with_name("windows.txt")
    resolve(known, linux, "--universal")
    resolve(known, windows, "--python-platform=windows")
    return names(linux) & names(windows), names(linux) - names(windows)


def write(name: str, known: Path, without: set[str], options: list[str]) -> None:
    """Write one file of the lock, less the packages `without`."""
    target = known.with_name(f"{name}.txt")
    resolve(known, target, "--universal", *options, *(f"--no-emit-package={each}" for each in sorted(without)))
    shutil.copyfile(target, FOLDER / f"{name}.txt")


def resolve(known: Path, target: Path, *options: str) -> None:
    """Resolve pyproject.toml into `target`, with versions of `known` where they fit.

    Raises CalledProcessError when versions do not fit together; uv has then printed which.
    """
    if known.exists() and target != known:
        shutil.copyfile(known, target)  # uv keeps the versions that it finds in the file it is to write
    uv = str(Path(sys.executable).with_name("uv"))
    command = [uv, "pip", "compile", *OPTIONS, *options, "-o", str(target), PYPROJECT.name]
    subprocess.run(command, cwd=PYPROJECT.parent, check=True)


def names(lock: Path) -> set[str]:
    """The packages of a file of the lock."""
    return {line.split("==")[0] for line in lock.read_text().splitlines() if line[:1].isalpha()}


if __name__ == "__main__":
    try:
        main(upgrade="--upgrade" in sys.argv[1:])
    except subprocess.CalledProcessError as refusal:
        sys.exit(refusal.returncode)  # uv has printed which versions do not fit together
