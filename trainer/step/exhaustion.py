"""Out of memory: how it is recognised, and the smaller micro-batch that answers it, in this start and the next.

All ranks repeat the step together (`Engine.repeatable`). Where they cannot, as in the optimiser's update, the rank
notes the smaller size in the training's store and ends, so that all ranks are started again.
"""

import contextlib
import gc
import resource
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from slipway.trainer.base import codec
from slipway.trainer.config.resolved import Config
from slipway.trainer.record import causes, files

T = TypeVar("T")
REMEDIES = "divide the model (layout.shard, layout.tensor), recompute (layout.activations), or shorten its samples"

OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""In the messages of libraries that have no error class for it: PyTorch's host allocator, and cuBLAS."""


@dataclass(frozen=True)
class MicroBatchNote:
    """A micro-batch that fits, with the number of ranks and the layout for which it does."""

    micro: int
    where: Mapping[str, Any]


class OutOfMemory(causes.Failure):
    """A step does not fit the memory; the message says what was done, or what the user can do."""

    def __init__(self, message: str, reason: str, answered: bool) -> None:
        super().__init__(message)
        self.reason = reason
        """The first line of the error that the allocator raised."""
        self.kind = causes.ANSWERED if answered else causes.OUT_OF_MEMORY
        """Whether the next start takes a smaller micro-batch."""


def out_of_memory(micro: int, reason: str) -> OutOfMemory:
    """The error of a rank that runs out of memory with micro-batches of `micro` samples."""
    if micro == 1:
        return OutOfMemory(f"out of memory with a micro-batch of 1: {REMEDIES} ({reason})", reason, answered=False)
    message = f"out of memory with a micro-batch of {micro}: the next start takes {micro // 2}"
    return OutOfMemory(message, reason, answered=True)


def reason(error: BaseException) -> str | None:
    """Why memory ran out in the passes of a step; None for any other error."""
    return error.reason if isinstance(error, OutOfMemory) else None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host (whose allocator has no error of its own)."""
    return any(_says_so(exception) for exception in _with_causes(error))


def first_line(error: BaseException) -> str:
    """The allocator's message. A pipeline's schedule raises its own error, with the allocator's as `__cause__`."""
    exception = next((candidate for candidate in _with_causes(error) if _says_so(candidate)), error)
    return next(iter(str(exception).splitlines()), type(exception).__name__)


def _says_so(error: BaseException) -> bool:
    has_text = isinstance(error, RuntimeError) and any(text in str(error) for text in OUT_OF_MEMORY_TEXTS)
    return has_text or isinstance(error, torch.OutOfMemoryError | MemoryError)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    exception: BaseException | None = error
    while exception is not None:
        yield exception
        exception = exception.__cause__


def is_an_error_on(device: torch.device) -> bool:
    """Whether running out of memory on `device` raises an error; without a limit on the host, the kernel kills."""
    if device.type == "cuda":
        return True
    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return any(limit != resource.RLIM_INFINITY for limit in limits)


def give_back_memory(device: torch.device) -> None:
    """Return unreferenced memory to the device: new process groups need some of it."""
    gc.collect()  # a model's hooks and its graph are reference cycles
    if device.type == "cuda":
        torch.cuda.empty_cache()


def note_micro_batch(config: Config, ranks: int, micro: int) -> None:
    """Note the micro-batch for the next start."""
    codec.replace(_path(config), MicroBatchNote(micro, _where(config, ranks)))


@contextlib.contextmanager
def noting(config: Config, ranks: int, largest: Callable[[], int]) -> Iterator[None]:
    """The context of work after whose OutOfMemory the next start halves the micro-batch, `largest()` now."""
    try:
        yield
    except OutOfMemory:
        if largest() > 1:
            note_micro_batch(config, ranks, largest() // 2)
        raise


def has_noted(config: Config, ranks: int) -> bool:
    """Whether there is a note for this number of ranks and this layout."""
    note = codec.read_if_whole(_path(config), MicroBatchNote)
    return note is not None and note.where == _where(config, ranks)


def noted_micro_batch(config: Config, ranks: int) -> int:
    """The configuration's micro-batch, or a smaller one from a note for this number of ranks and this layout."""
    note = codec.read_if_whole(_path(config), MicroBatchNote)
    if note is None or note.where != _where(config, ranks):
        return config.batch.micro
    return min(config.batch.micro, note.micro)


def _where(config: Config, ranks: int) -> dict[str, Any]:
    return {"ranks": ranks, **asdict(config.layout)}


def _path(config: Config) -> Path:
    return Path(config.placement.store) / files.MICRO_BATCH
