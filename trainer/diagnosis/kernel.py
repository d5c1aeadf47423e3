"""The kernel's log of a node: GPUs that the driver has lost, and processes killed because memory ran out.

Only the last minutes count, because the log may be days long. Its times and ours are of one clock, that of the machine
since its start.
"""

import errno
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.diagnosis.commands import NoEvidence

LOG = Path("/dev/kmsg")
RECORD_BYTES = 8192
"""A record of the log is never longer (Linux, Documentation/ABI/testing/dev-kmsg)."""
MOST_RECORDS = 200_000
RECENT_SECONDS = 600.0
MOST = 20
"""So many faults are reported, the newest ones."""
_XID = re.compile(r"NVRM: (Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d{1,3}))(?:, (.*))?")
_PROCESS = re.compile(r"pid=('?)([^,']*)\1, name=('?)([^,']*)\3,?\s*")
_KILLED = re.compile(
    r"[Oo]ut of memory(?: \([^)]*\))?: Kill(?:ed)? process (\d+),? \(([^)]*)\)(?:.*?anon-rss:(\d+)kB)?"
)


@dataclass(frozen=True)
class KernelFault:
    """One line of the log that speaks of a fault."""

    at: float
    """Seconds since the machine was started."""
    what: str
    """For a person: an Xid in the driver's words, so that its code can be searched for, or the killed process."""


def faults(records: Iterable[str], since: float = 0.0) -> list[KernelFault]:
    """The faults among records of /dev/kmsg (`priority,number,microseconds,flags;message`), the newest last."""
    fault_by_text: dict[str, KernelFault] = {}
    for record in records:
        head, _, message = record.partition(";")
        fields = head.split(",")
        if len(fields) < 3 or not fields[2].isdigit() or (at := int(fields[2]) / 1e6) < since:
            continue
        what = sentence(message.splitlines()[0] if message else "")
        if what:
            fault_by_text.pop(what, None)  # the same again: the newest one stays
            fault_by_text[what] = KernelFault(at, what)
    return list(fault_by_text.values())[-MOST:]


def sentence(message: str) -> str:
    """The fault in a line of the log; empty for any other line."""
    xid = _XID.search(message)
    if xid:
        text = xid[4] or ""
        program = ""
        process = _PROCESS.match(text)
        if process:
            text = text[process.end() :]
            program = f" (pid {process[2]}, {process[4]})" if process[2].isdigit() else ""
        return f"{xid[1]}{': ' if text else ''}{text.rstrip('.')}{program}"
    killed = _KILLED.search(message)
    if killed:
        memory = f", which held {int(killed[3]) / 1e6:.1f} GB" if killed[3] else ""
        limit = "the limit of its container" if "cgroup" in message else "the node's memory"
        return f"the kernel killed {killed[2]} (pid {killed[1]}){memory}: {limit} was used up"
    return ""


def recent(seconds: float, log: Path = LOG) -> bytes:
    """The faults of the last minutes, a line each, read within `seconds`. Raises NoEvidence, and OSError."""
    recent_faults = faults(_read(log, time.monotonic() + seconds), time.monotonic() - RECENT_SECONDS)
    return "".join(f"{fault.what}\n" for fault in recent_faults).encode()


def _read(log: Path, deadline: float) -> Iterable[str]:
    """The records that the log has now, the oldest first."""
    try:
        descriptor = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise NoEvidence(f"{log}: {error.strerror}") from None
    try:
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten during the read: the next read continues
                    continue
                raise
            if not record or time.monotonic() > deadline:
                return
            yield record.decode(errors="replace")
    finally:
        os.close(descriptor)
