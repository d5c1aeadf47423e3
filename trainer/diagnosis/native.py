"""Native stacks: what each rank does in C, by py-spy, where it is installed and may look into other processes.

py-spy is no dependency: it needs the right to trace (CAP_SYS_PTRACE, or kernel.yama.ptrace_scope = 0), which a pod
rarely has, and it stops the rank while it looks. Where it is there, it is used.
"""

from collections.abc import Iterable

from slipway.trainer.diagnosis import commands
from slipway.trainer.diagnosis.commands import Lacking
from slipway.trainer.diagnosis.stacks import StackFile, is_frozen, state


def dump(files: Iterable[StackFile], seconds: float) -> bytes:
    """The stacks of all threads of these ranks with their calls in C. Raises Lacking."""
    tool, alive = commands.found("py-spy"), [each for each in files if state(each.pid)]
    if not alive:
        raise Lacking("no rank is alive")
    printed = []
    for each in alive:
        # A process that is stopped already is read as it is; py-spy would wait for it to stop.
        how = ["--nonblocking"] if is_frozen(state(each.pid)) else ["--native"]
        found = commands.output([tool, "dump", "--pid", str(each.pid), *how], seconds / len(alive))
        printed.append(f"rank {each.rank}, pid {each.pid}\n".encode() + found)
    return b"\n".join(printed)
