"""An export as a process of its own; it prints by how many bytes its memory grew at most."""

import re
import sys
from pathlib import Path

from slipway.trainer.start import export


def memory(field: str) -> int:
    """A number of /proc/self/status in bytes: VmRSS, which is held now, or VmHWM, the most since it was reset."""
    match = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return 1024 * int(match[1])


if __name__ == "__main__":
    # The first export imports what all of them need.
    small, large, folder = map(Path, sys.argv[1:])
    export.export(small, folder / "small")
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, proc(5)
    before = memory("VmRSS")
    export.export(large, folder / "large", file_bytes=10_000_000)
    print(memory("VmHWM") - before)
