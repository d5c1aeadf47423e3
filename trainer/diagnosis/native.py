"""Native stacks: each rank's stacks in C, by py-spy, if it is installed and may trace other processes.

py-spy is no dependency: it needs the right to trace (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0), which a pod
rarely has, and it stops the rank while it reads.
"""

from collections.abc import Iterable

from slipway.trainer.diagnosis import commands
from slipway.trainer.diagnosis.commands import NoEvidence
from slipway.trainer.diagnosis.stacks import StackFile, is_frozen, state


def dump(files: Iterable[StackFile], seconds: float) -> bytes:
    """The stacks of all threads of these ranks with their calls in C. Raises NoEvidence."""
    tool = commands.executable("py-spy")
    alive = [file for file in files if state(file.pid)]
    if not alive:
        raise NoEvidence("no rank is alive")
    printed = []
    for file in alive:
        # Do not stop a process that is stopped already: py-spy would wait for ever.
        how = ["--nonblocking"] if is_frozen(state(file.pid)) else ["--native"]
        output = commands.output([tool, "dump", "--pid", str(file.pid), *how], seconds / len(alive))
        printed.append(f"rank {file.rank}, pid {file.pid}\n".encode() + output)
    return b"\n".join(printed)
