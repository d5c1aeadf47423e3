"""Live bytes: a dispatch mode that tracks live storages, their purposes, and the peak of their bytes.

Every operation of a step goes through it, real or fake. A storage counts from the operation that allocates it until
nothing refers to it, or until it is resized (as FSDP does to free gathered weights). Scratch memory inside a kernel is
invisible: that of cuBLAS and cuDNN belongs to the margin.
"""

import contextlib
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

SNAPSHOT_GROWTH = 1.002
"""A list of the live storages is made for each peak that is higher than the last one by this factor."""
COMMUNICATION = ("c10d", "_c10d_functional", "fsdp")
"""The namespaces of operations that send, receive, or arrange memory for it."""
ALIGNMENT = 512
"""The allocator of a GPU allocates multiples of this many bytes (c10/cuda/CUDACachingAllocator)."""


class LiveStorage:
    """One storage: its bytes, and what it is for."""

    __slots__ = ("purpose", "size")

    def __init__(self, size: int, purpose: str) -> None:
        self.size = size
        self.purpose = purpose


class PurposePeak:
    """The most bytes that were alive while one purpose was set, and which they were."""

    def __init__(self) -> None:
        self.size = self.listed = 0
        self.alive: list[tuple[LiveStorage, int]] = []

    def parts(self) -> dict[str, int]:
        """The bytes by purpose; storages after the last list are `working`."""
        parts: dict[str, int] = defaultdict(int)
        for storage, size in self.alive:
            parts[storage.purpose] += size
        parts["working"] += self.size - sum(parts.values())
        return dict(parts)


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered; enter it after FakeTensorMode, so that operations reach it first.

    `purpose` is the purpose of new storages. `assign` may give a storage another purpose later; the parts of the peak
    then follow, because they are summed at the end.
    """

    def __init__(self, alignment: int = ALIGNMENT, fake: bool = True) -> None:
        """`fake`: whether fake tensors count, or tensors with memory."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.purpose = "weights"
        self.live = 0
        self.sent: Counter[str] = Counter()
        """Bytes that this rank sends, by the name of the group of ranks."""
        self._alignment = alignment
        self._fake = fake
        self._known: dict[int, LiveStorage] = {}
        self._peaks: dict[str, PurposePeak] = defaultdict(PurposePeak)
        self._resize: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        self._resize = plain = torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            changed = plain(storage, size)
            self._resized(storage)
            return changed

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._resize is not None
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        # DTensors are unwrapped first: their local operations and collectives then come here again.
        if any(_is_wrapper(kind) for kind in types):
            return NotImplemented
        if operation is torch.ops.aten._local_scalar_dense.default and arguments[0].is_meta | _is_fake(arguments[0]):
            return 1.0 if arguments[0].dtype.is_floating_point else 1
        result = operation(*arguments, **(options or {}))
        between = operation.namespace in COMMUNICATION
        if between:
            self._count_sent(operation, arguments)
        for tensor in _tensors(result):
            self._add(tensor, "communication" if between and self.purpose != "weights" else self.purpose)
        return result

    def assign(self, tensors: Iterator[Tensor], purpose: str) -> None:
        """Set the purpose of these tensors."""
        for tensor in tensors:
            for part in _parts(tensor):
                known = self._known.get(part.untyped_storage()._cdata)
                if known:
                    known.purpose = purpose

    def restart(self) -> None:
        """Forget the peaks and the traffic so far."""
        self._peaks.clear()
        self.sent.clear()

    def peaks(self) -> dict[str, dict[str, int]]:
        """For each purpose, the highest peak while it was set: bytes by the purposes of the live storages."""
        return {purpose: peak.parts() for purpose, peak in self._peaks.items()}

    def _count_sent(self, operation: Any, arguments: Any) -> None:
        """A ring sends a whole tensor less the rank's own part; an all-reduce does so twice (NCCL's bus bandwidth)."""
        name = operation.name().rpartition("::")[2]
        group = next((process_group for argument in arguments if (process_group := _group(argument))), None)
        if group is None or "recv" in name or "wait" in name:
            return
        full_size = max((_size(tensor) for tensor in _tensors(arguments)), default=0)
        ranks = group.size()
        if name.startswith("all_gather"):  # the functional one is given the rank's own part
            full_size *= ranks
        times = 1.0 if name.startswith("send") else (2 if "reduce" in name and "scatter" not in name else 1)
        self.sent[group.group_name] += round(
            full_size * times * (1 if name.startswith("send") else (ranks - 1) / ranks)
        )

    def _add(self, tensor: Tensor, purpose: str) -> None:
        if _is_fake(tensor) != self._fake or tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known[key] = LiveStorage(self._rounded(storage.nbytes()), purpose)
        weakref.finalize(storage, self._remove, key)
        self._grow(self._known[key].size)

    def _remove(self, key: int) -> None:
        gone = self._known.pop(key, None)
        if gone:
            self.live -= gone.size

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP makes room for whole weights by resizing, and frees it so."""
        known = self._known.get(storage._cdata)
        if known is None:
            return
        old_size = known.size
        known.size = self._rounded(storage.nbytes())
        known.purpose = "gathered"
        self._grow(known.size - old_size)

    def _grow(self, size: int) -> None:
        self.live += size
        peak = self._peaks[self.purpose]
        if self.live > peak.size:
            peak.size = self.live
            if peak.size > peak.listed * SNAPSHOT_GROWTH:
                peak.listed = peak.size
                peak.alive = [
                    (known_storage, known_storage.size) for known_storage in self._known.values() if known_storage.size
                ]

    def _rounded(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment


def _is_wrapper(kind: type) -> bool:
    """Whether a tensor of this class wraps others (DTensor, AsyncCollectiveTensor) and has no own memory."""
    return hasattr(kind, "__tensor_flatten__") or kind.__name__ == "AsyncCollectiveTensor"


def _is_fake(tensor: Tensor) -> bool:
    return type(tensor).__name__ == "FakeTensor"


def _parts(tensor: Any) -> Iterator[Tensor]:
    """The tensors with memory of which one consists."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            if isinstance(inner := getattr(tensor, name), Tensor):
                yield from _parts(inner)
    else:
        yield tensor


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in the arguments or results of an operation."""
    if isinstance(value, Tensor):
        yield from _parts(value)
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _group(argument: Any) -> dist.ProcessGroup | None:
    """The group of ranks that an argument of an exchange is or names."""
    if isinstance(argument, torch.ScriptObject):
        with contextlib.suppress(RuntimeError):
            return dist.ProcessGroup.unbox(argument)
    if isinstance(argument, str):
        with contextlib.suppress(LookupError, RuntimeError, ValueError):
            known: Any = dist.distributed_c10d
            group: dist.ProcessGroup = known._resolve_process_group(argument)
            return group
    return None
