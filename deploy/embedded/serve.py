"""A lasting instance: in the foreground until Ctrl-C, or detached from the terminal until `slipway down`."""

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
"""The file in the home's `dagster/` with the output of a detached instance."""
DOWN_SECONDS = 60.0
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class InstanceUp:
    """A detached instance that answers."""

    pid: int
    url: str


def port(environ: Mapping[str, str] = os.environ) -> int | None:
    """The value of SLIPWAY_PORT; None if it is not set. Raises ValueError if it is no port."""
    setting = environ.get(PORT)
    if setting is None:
        return None
    if not setting.isdecimal() or not 0 < int(setting) < 65536:
        raise ValueError(f"{PORT}: found {setting!r}, expected a port from 1 to 65535")
    return int(setting)


def serve(home: Home) -> list[str]:
    """Run an instance until Ctrl-C or SIGTERM. Returns the trainings that go on without it.

    Raises InvalidRecipes if no recipe can be read, and the CannotStart of `instance.running`.
    """
    _tell_what_is_broken()
    signals.on_sigterm()
    try:
        with instance.running(home, port() or instance.DEFAULT_PORT) as running:
            print(f"Slipway is at {running.url}; Ctrl-C closes it (home: {home.root})", flush=True)
            if running.mlflow:
                print(f"MLflow's pages are at {running.mlflow}/#/experiments in a moment", flush=True)
            if running.second_to is not None:
                print(f"It only shows the state: {running.second_to} decides until it ends", flush=True)
            while True:
                running.check()
                time.sleep(1)
    except KeyboardInterrupt:
        return sorted({name.rpartition("-i")[0] for name in jobs.live(home)})


def up(home: Home) -> InstanceUp:
    """Start an instance that goes on without this process, and return when it answers.

    Raises CannotStart if an instance already runs, or with the last output line if the new instance ends.
    """
    there = home_lock.current_user(home)
    if there is not None:
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
    raise CannotStart(log_lines[-1].removeprefix("slipway: ") if log_lines else f"it ended without output; see {log}")


def _tell_what_is_broken() -> None:
    """Print the unusable recipes, which the UI also shows. Raises InvalidRecipes if no recipe can be read."""
    for recipe in usable(recipes_folder()).broken:
        for problem in recipe.problems:
            print(problem, file=sys.stderr)
        print(f"{recipe.kind}/{recipe.name} cannot be used; the others can", file=sys.stderr)


def down(home: Home) -> bool:
    """End the instance of a home, and return when it has ended. Returns False if none runs. Trainings go on.

    Raises CannotStart if the instance does not end in time.
    """
    deadline = time.monotonic() + DOWN_SECONDS
    there = home_lock.current_user(home)
    if there is not None and "by" in there:
        raise CannotStart(f"no instance runs; its home is used by {home_lock.description(there)}")
    while there is not None and not there["pid"] and time.monotonic() < deadline:  # it has not written its pid yet
        time.sleep(LOOK_SECONDS)
        there = home_lock.current_user(home)
    if there is None:
        return False
    pid = int(there["pid"])
    command = processes.command_line(pid)
    if command:
        os.kill(pid, signal.SIGTERM)
    # The instance releases the home before its last process has ended.
    while home_lock.current_user(home) is not None or (command and processes.command_line(pid) == command):
        if time.monotonic() > deadline:
            raise CannotStart(f"the instance (process {pid}) has not ended after {DOWN_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)
    return True


def _detached(home: Home, log: Path) -> "subprocess.Popen[bytes]":
    """Start `slipway dev` in its own session, so that closing the terminal does not end it."""
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
