"""An instance that stays: in the foreground until Ctrl-C, or detached from the terminal until it is taken down."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.deploy.embedded import CannotStart, home_lock, instance, jobs, signals
from slipway.recipes import folder
from slipway.recipes.load import recipes_folder
from slipway.recipes.usable import usable
from slipway.resources.home import Home
from slipway.trainer.base import processes, regular_file
from slipway.trainer.base.paths import CODE

PORT = "SLIPWAY_PORT"
LOG = "instance.log"
"""In the home's `dagster/`: what a detached instance prints."""
DOWN_SECONDS = 60.0
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class InstanceUp:
    """An instance that runs."""

    pid: int
    url: str


def port(environ: Mapping[str, str] = os.environ) -> int | None:
    """SLIPWAY_PORT, None when it is not set. Raises ValueError for what is no port."""
    setting = environ.get(PORT)
    if setting is None:
        return None
    if not setting.isdecimal() or not 0 < int(setting) < 65536:
        raise ValueError(f"{PORT}: found {setting!r}, expected a port from 1 to 65535")
    return int(setting)


def serve(home: Home) -> list[str]:
    """Run an instance until Ctrl-C or SIGTERM; returns the trainings that go on without it.

    Raises InvalidRecipes where no recipe can be read, and CannotStart as `instance.running` does.
    """
    _tell_what_is_broken()
    signals.on_sigterm()
    try:
        with instance.running(home, port() or instance.DEFAULT_PORT) as running:
            print(f"Slipway is at {running.url}; Ctrl-C closes it (home: {home.root})", flush=True)
            if running.mlflow:
                print(f"MLflow's pages are at {running.mlflow}/#/experiments in a moment", flush=True)
            if running.second_to is not None:
                print(f"It only shows what is: {running.second_to} decides, until that has ended", flush=True)
            while True:
                running.check()
                time.sleep(1)
    except KeyboardInterrupt:
        return sorted({name.rpartition("-i")[0] for name in jobs.live(home)})


def up(home: Home) -> InstanceUp:
    """Start an instance that goes on without this process; returns when it answers.

    Raises CannotStart when one runs already, or with what the new one said when it ended.
    """
    if (there := home_lock.current_user(home)) is not None:
        raise CannotStart(
            f"SLIPWAY_HOME {home.root}: found it in use ({home_lock.description(there)}), expected no instance"
        )
    _tell_what_is_broken()
    instance.prepare(home)
    log = home.dagster / LOG
    begun = log.stat().st_size if log.exists() else 0
    process = _detached(home, log)
    deadline = time.monotonic() + 2 * instance.START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        there = home_lock.current_user(home)
        if there and there["pid"] == process.pid and there["url"]:
            return InstanceUp(process.pid, str(there["url"]))
        time.sleep(0.1)
    ended = process.poll() is not None
    process.terminate()
    if not ended:
        raise CannotStart(f"it did not answer within {2 * instance.START_SECONDS:.0f} s, and was ended; see {log}")
    log_lines = regular_file.read(log)[begun:].decode(errors="replace").strip().splitlines()
    raise CannotStart(log_lines[-1].removeprefix("slipway: ") if log_lines else f"it ended without a word; see {log}")


def _tell_what_is_broken() -> None:
    """Say which recipes cannot be used; their lanes say so too. Raises InvalidRecipes where no recipe can be read."""
    for recipe in usable(recipes_folder()).broken:
        for problem in recipe.problems:
            print(problem, file=sys.stderr)
        print(f"{recipe.kind}/{recipe.name} cannot be used; the others can", file=sys.stderr)


def down(home: Home) -> bool:
    """End the instance of a home, and return when it is; False when none runs. Trainings go on.

    Raises CannotStart when it does not end.
    """
    deadline = time.monotonic() + DOWN_SECONDS
    there = home_lock.current_user(home)
    if there is not None and "by" in there:
        raise CannotStart(f"no instance runs; its home is used by {home_lock.description(there)}")
    while there is not None and not there["pid"] and time.monotonic() < deadline:  # it has not said who it is yet
        time.sleep(LOOK_SECONDS)
        there = home_lock.current_user(home)
    if there is None:
        return False
    pid = int(there["pid"])
    command = processes.command_line(pid)
    if command:
        os.kill(pid, signal.SIGTERM)
    # It lets go of the home before the last of it has ended.
    while home_lock.current_user(home) is not None or (command and processes.command_line(pid) == command):
        if time.monotonic() > deadline:
            raise CannotStart(f"the instance (process {pid}) has not ended after {DOWN_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)
    return True


def _detached(home: Home, log: Path) -> "subprocess.Popen[bytes]":
    """`slipway dev` in a session of its own, so that no terminal ends it."""
    path = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
    chosen = {"SLIPWAY_HOME": str(home.root), folder.VARIABLE: str(folder.selected()), "PYTHONPATH": path}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "slipway.cli", "dev"],
            env={**os.environ, **chosen},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
