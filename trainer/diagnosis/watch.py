"""The watch of a node's process over its ranks: it collects evidence on request, and when they fail.

A thread of the node's process reads requests from the training's store, so a hung store blocks nothing else. Evidence
of a failure is collected when the command of the node has ended, in a time that depends on its exit code: almost none
after a SIGKILL.
"""

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec, console, parsing, regular_file
from slipway.trainer.base.processes import ExitCode
from slipway.trainer.diagnosis import collection, folder, requests
from slipway.trainer.diagnosis.collection import DiagnosedNode
from slipway.trainer.record import fence, incarnation

POLL_SECONDS = 0.5
"""Between two looks for a request."""
LOG_BYTES = 64 << 10
WRITING_SECONDS = 1.0
"""How long the end of a node may wait for its evidence to be written, beyond the time of the collection."""
OF_NO_INTEREST = (ExitCode.DONE, ExitCode.UNUSABLE, ExitCode.SUPERSEDED, 128 + signal.SIGTERM)
"""Exit codes that need no further evidence."""


class DiagnosisWatch:
    """The watch of one node's process, as complete as possible; its methods never raise."""

    def __init__(self, config: str, stacks_folder: Path | None, log: Callable[[], bytes] | None = None) -> None:
        """`config`: the path of the job's configuration. `log`: the end of the output, by default that of stdout."""
        self._ended = threading.Event()
        self._node = _node(config, stacks_folder, log or own_output)
        self._incarnation = int(os.environ.get(incarnation.VARIABLE) or 0)
        if self._node is not None and self._incarnation:
            threading.Thread(target=self._look, args=(self._node,), name="diagnosis", daemon=True).start()

    def after_end(self, code: int) -> None:
        """The command of the node has ended with this exit code; collects evidence if it failed."""
        self._ended.set()
        if self._node is None or not self._incarnation or code in OF_NO_INTEREST:
            return
        killed = code == 128 + signal.SIGKILL
        seconds = collection.AFTER_KILL_SECONDS if killed else collection.AFTER_FAILURE_SECONDS
        why = f"the command of the node ended with exit code {code}"
        worker = threading.Thread(target=self._collect_failure, args=(self._node, why, seconds), daemon=True)
        worker.start()
        worker.join(seconds + WRITING_SECONDS)

    def _collect_failure(self, node: DiagnosedNode, why: str, seconds: float) -> None:
        with _failures_logged(node):
            claim = fence.newest_claim(node.store)
            if claim is not None and claim.token.incarnation == self._incarnation:
                collection.collect(node, str(claim.token), why, seconds)

    def _look(self, node: DiagnosedNode) -> None:
        """Answer each request once."""
        done: set[str] = set()
        logged_lines: set[str] = set()
        while not self._ended.wait(POLL_SECONDS):
            with _failures_logged(node, logged_lines):
                for id in requests.names(node.store, self._incarnation):
                    if id in done:
                        continue
                    done.add(id)
                    if node.name not in folder.nodes(node.store, id):
                        collection.collect(node, id, _why(node.store, id), collection.SECONDS)


def own_output() -> bytes:
    """The end of the output of this process and its descendants, if that goes into a file. Raises OSError."""
    file_stat = os.fstat(sys.stdout.fileno())
    if not stat.S_ISREG(file_stat.st_mode):
        return b""
    # Opened anew: the file may be open for writing alone.
    with open(f"/proc/self/fd/{sys.stdout.fileno()}", "rb") as file:
        file.seek(max(0, file_stat.st_size - LOG_BYTES))
        return file.read(LOG_BYTES)


def _node(config: str, stacks_folder: Path | None, log: Callable[[], bytes]) -> DiagnosedNode | None:
    """This node in the job's configuration; None for a job that trains nothing."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        placement: dict[str, Any] = parsing.value(regular_file.read(Path(config)))["placement"]
        name = os.environ.get("SLIPWAY_NODE", "local")
        nvme = Path(str(placement.get("nvme") or "/").format(node=name))
        return DiagnosedNode(Path(placement["store"]), name, stacks_folder, (nvme,), log)
    return None


def _why(store: Path, id: str) -> str:
    with contextlib.suppress(OSError, codec.UndecodableRecord):
        request = requests.read(store, id)
        return f"{request.by}: {request.why}"
    return "asked"


@contextlib.contextmanager
def _failures_logged(node: DiagnosedNode, logged_lines: set[str] | None = None) -> Iterator[None]:
    """The context of a best effort: an error goes to the log, unless it was `logged_lines`, and is ignored."""
    try:
        yield
    except Exception as error:
        line = f"trainer: the evidence of {node.name} could not be kept: {error}"
        if logged_lines is None or line not in logged_lines:
            console.warn(line)
        if logged_lines is not None:
            logged_lines.add(line)
