"""Installs a file of the lock into the environment of the Python that runs this: `python requirements/install.py dev`.

It needs a Python with pip and nothing else, so that `make install` and the images run the same lines. Further
arguments are options of `pip install`.

pip accepts a file only if the lock has its hash, and builds nothing. torch stands apart: one version has several
builds (CUDA, ROCm, CPU) which need different packages, and each machine chooses its build, by the settings of pip or
by TORCH_INDEX, the index to take torch from. Such a build has a name in its version (2.13.0+cpu): pip installs it by
version, with what it needs. 2.13.0 without a name is the build of the package index: pip installs it, and the packages
of CUDA, by the hashes of torch.txt.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
LOCKED = ["install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]


def main(name: str, *options: str) -> None:
    """Install `name`.txt, then torch. Raises CalledProcessError when pip refuses; pip has then printed why."""
    pip(*LOCKED, *options, "--requirement", f"{FOLDER / name}.txt")
    torch, environment = wanted_torch(), environment_of_torch()
    if "+" in build_of(torch, environment):
        pip("install", "--quiet", "--only-binary=:all:", *options, torch, environment=environment)
    else:
        pip(*LOCKED, *options, "--requirement", f"{FOLDER / 'torch.txt'}", environment=environment)


def wanted_torch() -> str:
    """torch as the lock has it, `torch==<version>`."""
    lines = (FOLDER / "torch.txt").read_text().splitlines()
    return next(line.split()[0] for line in lines if line.startswith("torch=="))


def environment_of_torch() -> dict[str, str]:
    """The environment in which pip looks for torch."""
    index = os.environ.get("TORCH_INDEX")
    return {**os.environ, "PIP_INDEX_URL": index} if index else dict(os.environ)


def build_of(torch: str, environment: dict[str, str]) -> str:
    """The version of the build that pip would take, such as 2.13.0+cpu."""
    options = ["--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--report=-"]
    report = pip("install", *options, torch, environment=environment, stdout=subprocess.PIPE)
    return str(json.loads(report)["install"][0]["metadata"]["version"])


def pip(*arguments: str, environment: dict[str, str] | None = None, stdout: int | None = None) -> str:
    """Run pip; returns what it printed if `stdout` is a pipe."""
    done = subprocess.run([*PIP, *arguments], env=environment, stdout=stdout, text=True, check=True)
    return done.stdout or ""


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except subprocess.CalledProcessError as refusal:
        sys.exit(refusal.returncode)  # pip has printed why
