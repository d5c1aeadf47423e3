"""The exit of a rank: its own record of its end, from which the end of the incarnation is recorded.

An exit code survives every launcher, but carries little information: torchrun exits with 1 for a rank that was asked to
stop on another node. So a rank that ends before the last step leaves a record, ends/<token>.<rank>.json. Of the records
of several ranks, the most informative one counts. A rank that is killed leaves none.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import causes, fence, files, incarnation, incidents

PRECEDENCE = (
    causes.CONFIGURATION,
    causes.CORRUPTION,
    causes.MACHINE,
    causes.NODE,
    causes.DIVERGED,
    causes.SPIKE,
    causes.OUT_OF_MEMORY,
    causes.ANSWERED,
    causes.STORAGE,
    causes.STOP_REQUESTED,
    causes.SUPERSEDED,
    causes.PROGRAM,
    causes.NETWORK,
)
"""The most telling class first: the later ones may follow from an earlier one on another rank."""
HARDWARE = (
    "uncorrectable",  # ECC, NVLink
    "hardware",
    "no CUDA-capable device",
    "CUDA-capable device(s) is/are busy or unavailable",
    "unknown error",
    "GPU is lost",
    "fallen off the bus",
    "Xid",
)
"""The texts of CUDA errors that a program does not cause (CUDA runtime API, `cudaError_t`)."""
NODE_FAULT_TEXTS = (
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "driver version is insufficient",
    "system not yet initialized",  # the fabric manager of NVLink
    "address already in use",
    "Address already in use",
    "EADDRINUSE",
    "No space left on device",  # /dev/shm among it
    "Cannot allocate memory",
    "Too many open files",
)
"""In the errors of libraries on a node that lacks something that every start needs."""
NODE_FAULT_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
COMMUNICATION = ("NCCL", "gloo", "Connection closed by peer", "Connection reset by peer", "ProcessGroup")
"""In the errors of a rank whose peers are gone."""
GONE = ("process group has not been initialized", "resolve the process group", "is not registered, please create group")
"""In the error of a collective that begins after another thread has ended all groups: a ValueError of torch."""


@dataclass(frozen=True)
class RankEnd:
    """Why one rank ended."""

    rank: int
    kind: str
    """Of `slipway.trainer.record.causes`."""
    reason: str
    step: int
    node: str
    at: float
    """Seconds since the epoch, by the clock of the node."""
    world: int = 0
    """The number of ranks; 0 in a record of an earlier version."""


def note(store: Path, token: fence.Token, rank: int, kind: str, reason: str, step: int = 0, node: str = "") -> None:
    """Write a rank's record, unless it has one or the store cannot be written.

    node: the node on which the failure began, if that is not the rank's own.
    """
    end = RankEnd(rank, kind, reason, step, node or os.environ.get("SLIPWAY_NODE", "local"), time.time(), _world())
    with contextlib.suppress(OSError):
        codec.create_only(files.named(store, files.ENDS, f"{token}.{rank:05d}"), end)


@contextlib.contextmanager
def noted(store: Path) -> Iterator[None]:
    """The context of a rank's work: records an error that ends the rank, if a launcher started it, and raises it."""
    try:
        yield
    except (Exception, SystemExit) as raised:
        # A script's error has become its exit code already.
        error = (raised.__context__ or raised) if isinstance(raised, SystemExit) else raised
        token = incarnation.from_environment()
        kind = kind_of(error)
        if token and kind and str(error):
            node = error.nodes[0] if isinstance(error, causes.UnfitNode) and error.nodes else ""
            note(store, token, int(os.environ.get("RANK", "0")), kind, str(error).splitlines()[0], node=node)
        raise


def decisive(store: Path, incarnation: int) -> RankEnd | None:
    """The most informative record of an incarnation's last generation; None without one. Raises OSError.

    If some ranks report a failed collective and the others left no record, one of these died. Then the supervisor's
    incident counts, if there was a supervisor.
    """
    last = _last_generation(store, incarnation)
    ends = []
    for name in files.names(store, files.ENDS):
        if name.startswith(f"{last}."):
            with contextlib.suppress(codec.UndecodableRecord):
                ends.append(codec.read(files.named(store, files.ENDS, name), RankEnd))
    most_telling = min(ends, key=lambda end: _precedence(end.kind), default=None)
    alone = most_telling is not None and most_telling.kind == causes.NETWORK and len(ends) < most_telling.world
    return _of_incident(store, last) if alone or most_telling is None else most_telling


def _last_generation(store: Path, incarnation: int) -> fence.Token:
    """The last generation that was claimed or has left a record; 0 if there is none."""
    claimed = [claim.token for claim in fence.claims(store)]
    end_tokens = [fence.Token.parse(name.rpartition(".")[0]) for name in files.names(store, files.ENDS)]
    return max(
        (token for token in (*claimed, *end_tokens) if token.incarnation == incarnation),
        default=fence.Token(incarnation),
    )


def _of_incident(store: Path, token: fence.Token) -> RankEnd | None:
    """The end of a generation by its incident, which was observed from outside its ranks."""
    try:
        incident = incidents.read(store, str(token))
    except (FileNotFoundError, codec.UndecodableRecord):
        return None
    rank = (incident.ranks or (0,))[0]
    node = (incident.nodes or ("",))[0]
    return RankEnd(rank, incident.kind, incident.reason, incident.step, node, incident.at)


def kind_of(error: BaseException) -> str:
    """The class of the error that ends a rank; that of the network may only follow from the end of another rank."""
    text = str(error)
    match error:
        case causes.Failure():
            return error.kind
        case fence.Superseded():
            return causes.SUPERSEDED
        case MemoryError():  # of the host; `slipway.trainer.step.exhaustion` answers for the passes of a step
            return causes.NODE
        case codec.UndecodableRecord():
            return causes.STORAGE
        case ValueError() | RuntimeError() if any(sign in text for sign in GONE):
            return causes.NETWORK
        case ValueError():
            return causes.CONFIGURATION
        case OSError():
            return causes.NODE if error.errno in NODE_FAULT_ERRORS else causes.STORAGE
        case RuntimeError() if any(sign in text for sign in NODE_FAULT_TEXTS):
            return causes.NODE
        case RuntimeError() if "CUDA error" in text and any(sign in text for sign in HARDWARE):
            return causes.MACHINE
        case RuntimeError() if any(sign in text for sign in COMMUNICATION):
            return causes.NETWORK
    return causes.PROGRAM


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _precedence(kind: str) -> int:
    return PRECEDENCE.index(kind) if kind in PRECEDENCE else len(PRECEDENCE)
