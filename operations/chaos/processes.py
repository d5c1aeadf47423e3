"""The processes of a job of the embedded instance, by their part in it, as /proc shows them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.resources.launchers.environment import JOB_VARIABLE
from slipway.trainer.base import processes, regular_file

KEEPER = "slipway.resources.launchers.local.keeper"
STORE = "slipway.resources.launchers.local.rendezvous"
NODE = "slipway.trainer.node.process"
SUPERVISOR = "slipway.trainer.supervisor"
RANK = "slipway.trainer"
WRITER = "slipway.trainer.checkpoint.saving.writer"


@dataclass(frozen=True)
class JobProcess:
    """A live process of a job."""

    pid: int
    module: str
    """What Python runs in it."""
    node: str
    """Empty for the processes that belong to no node."""


def of_job(job: str, jobs: Path) -> list[JobProcess]:
    """All that is alive of the job of this name, by node and pid; `jobs` is the folder of the jobs."""
    keepers = processes.running("-m", KEEPER, str(jobs.resolve() / job))
    helpers = [pid for keeper in keepers for pid in (keeper, *processes.children(keeper))]
    found = map(_process, dict.fromkeys([*helpers, *processes.carrying({JOB_VARIABLE: job})]))
    return sorted((each for each in found if each.module), key=lambda each: (each.node, each.pid))


def running(found: Sequence[JobProcess], *modules: str) -> list[JobProcess]:
    """Those of these processes that run one of the modules."""
    return [each for each in found if each.module in modules]


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty for one that is gone, or another user's."""
    return dict(entry.split("=", 1) for entry in _strings(pid, "environ") if "=" in entry)


def _process(pid: int) -> JobProcess:
    words, named = _strings(pid, "cmdline"), environment(pid)
    modules = [name for flag, name in itertools.pairwise(words) if flag == "-m"]
    # torchrun names its own module, and then that of the ranks.
    return JobProcess(pid, modules[0] if modules else "", named.get(NODE_VARIABLE, ""))


def _strings(pid: int, name: str) -> list[str]:
    """A list of strings in /proc; empty for a process that is gone, or another user's."""
    try:
        content = regular_file.read(Path("/proc", str(pid), name))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
    return [part.decode(errors="replace") for part in content.split(b"\0") if part]
