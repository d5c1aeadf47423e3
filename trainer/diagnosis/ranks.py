"""Ranks in a diagnosis: whether each lives, its stack, and whether it waits in a collective."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.diagnosis import stacks
from slipway.trainer.diagnosis.stacks import StackFile, StackFrame

INNERMOST = 4
"""So many calls are looked at: an exchange is the innermost thing that a waiting rank does."""
_EXCHANGE = re.compile(
    r"\b(all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|barrier|monitored_barrier|all_to_all\w*|"
    r"gather(?:_object)?|scatter\w*|isend|irecv|send|recv|batch_isend_irecv|wait)\("
)
_FOLDERS = ("/torch/distributed/", "/trainer/node/", "/trainer/step/")
"""Where calls of these names are exchanges between ranks."""
_BACKWARD = "_engine_run_backward"
GRADIENTS = "the exchange of gradients"
"""The collective of a rank that sleeps inside a backward pass: PyTorch reduces gradients there, in C++."""
_STATES = {
    "": "ended",
    "R": "running",
    "S": "waiting",
    "D": "waiting for a disk or a driver",
    "T": "stopped",
    "t": "stopped by a debugger",
}


@dataclass(frozen=True)
class RankSeen:
    """One rank of a node at the moment of a diagnosis."""

    rank: int
    pid: int
    state: str
    """In words: running, waiting, stopped, ended."""
    where: str = ""
    """The innermost call of the thread that trains; empty without a stack."""
    exchange: str = ""
    """The collective in which it waits; empty if it is in none, or has no stack."""
    kernel: str = ""
    """The function of the kernel in which it sleeps (/proc/PID/wchan), as far as that can be read."""

    @property
    def ended(self) -> bool:
        return self.state == _STATES[""]

    @property
    def frozen(self) -> bool:
        """Whether it cannot run."""
        return self.state in (_STATES["D"], _STATES["T"], _STATES["t"])


def observed(file: StackFile, answered: bool, written: str) -> RankSeen:
    """One rank; `answered`: whether its stack is of now."""
    frames = stacks.main_thread(written) if answered else []
    letter = stacks.state(file.pid)
    where = str(frames[0]) if frames else ""
    inside = exchange(frames) or (GRADIENTS if letter == "S" and frames and frames[0].function == _BACKWARD else "")
    return RankSeen(file.rank, file.pid, _STATES.get(letter, letter), where, inside, _kernel(file.pid))


def exchange(frames: Sequence[StackFrame]) -> str:
    """The collective in a stack, whose innermost call is first; empty for none."""
    for frame in frames[:INNERMOST]:
        if not any(folder in frame.file for folder in _FOLDERS):
            continue
        match = _EXCHANGE.search(f"{frame.function}(")
        if match:
            return match[1]
        called = _EXCHANGE.search(frame.source)
        if called:
            return called[1]
    return ""


def _kernel(pid: int) -> str:
    with contextlib.suppress(OSError):
        wait_channel = Path(f"/proc/{pid}/wchan").read_text().strip()
        return "" if wait_channel == "0" else wait_channel
    return ""
