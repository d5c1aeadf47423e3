"""Flight recorder: the last exchanges of each rank as PyTorch's NCCL backend has them, written on demand.

PyTorch keeps them when TORCH_FR_BUFFER_SIZE is set, dumps them when an exchange times out, and on demand for whoever
writes to a named pipe of the rank. A dump is a pickle: it is kept as it is, and never loaded here; `torchfrtrace` of
PyTorch reads it.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from slipway.trainer.base import regular_file
from slipway.trainer.diagnosis import stacks
from slipway.trainer.diagnosis.commands import NoEvidence

EXCHANGES = 2000
"""The number of collectives that each rank records."""
PREFIX = "flight-"
MOST_BYTES = 1 << 20
"""Of one rank's dump."""


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that PyTorch reads; empty in a rank that no node's process started."""
    folder = environment.get(stacks.VARIABLE)
    if not folder:
        return {}
    where = str(Path(folder) / PREFIX)
    return {
        "TORCH_FR_BUFFER_SIZE": str(EXCHANGES),
        "TORCH_FR_DUMP_TEMP_FILE": where,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": where,
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        # The stacks of each exchange would be collected under Python's lock, for which a hung rank may wait.
        "TORCH_INCLUDE_STACK_TRACE": "0",
    }


def dumps(folder: Path, seconds: float) -> dict[str, bytes]:
    """The dump of each rank of this node, by file name. Raises NoEvidence if no rank uses NCCL."""
    pipes = sorted(folder.glob(f"{PREFIX}*.pipe"))
    begun = time.time()
    for pipe in pipes:
        _ask(pipe)
    deadline = time.monotonic() + seconds
    paths = [pipe.with_suffix("") for pipe in pipes]
    while time.monotonic() < deadline and not all(_is_new(path, begun) for path in paths):
        time.sleep(0.02)
    dump_files = [path for path in sorted(folder.glob(f"{PREFIX}*")) if path.suffix != ".pipe"]
    if not dump_files:
        raise NoEvidence("no rank has left a dump" if pipes else "no rank uses NCCL")
    return {path.name: regular_file.read(path)[:MOST_BYTES] for path in dump_files}


def _ask(pipe: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # an error where no rank reads
        try:
            os.write(descriptor, b"1\n")
        finally:
            os.close(descriptor)


def _is_new(dump: Path, begun: float) -> bool:
    with contextlib.suppress(OSError):
        return dump.stat().st_mtime >= begun - 1
    return False
