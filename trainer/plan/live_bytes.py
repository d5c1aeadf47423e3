"""Live bytes: a dispatch mode that knows which storages are alive, what each is for, and when they were the most.

Every operation of a step goes through it, real or fake. A storage counts from the operation that made it until nothing
refers to it any more, or until it is resized (FSDP frees gathered weights so). Scratch memory inside one kernel is not
seen: that of cuBLAS and cuDNN belongs to the margin.
"""

import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

SNAPSHOT_GROWTH = 1.002
"""A list of what is alive is kept for each peak that is higher than the last one by this factor."""
COMMUNICATION = ("c10d", "_c10d_functional", "fsdp")
"""The namespaces of operations that send, receive, or arrange memory for it."""
ALIGNMENT = 512
"""The allocator of a GPU gives multiples of this many bytes (c10/cuda/CUDACachingAllocator)."""


class LiveStorage:
    """One storage: its bytes, and what it is for."""

    __slots__ = ("purpose", "size")

    def __init__(self, size: int, purpose: str) -> None:
        self.size, self.purpose = size, purpose


class LiveBytes(TorchDispatchMode):
    """Counts while it is entered; enter it after FakeTensorMode, so that it sees operations first.

    `purpose` names what is being made now. A storage may be given another purpose later (`assign`): the peak's parts
    follow, as they are summed up at the end.
    """

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        super().__init__()
        self.purpose = "weights"
        self.live = self.peak = 0
        self.sent: Counter[str] = Counter()
        """Bytes that this rank gives to operations between ranks, by the name of their group."""
        self._alignment = alignment
        self._known: dict[int, LiveStorage] = {}
        self._at_peak: list[tuple[LiveStorage, int]] = []
        self._listed = 0
        self._resize: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        super().__enter__()
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
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign, assignment]
        super().__exit__(kind, error, trace)

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        # Divided tensors come apart first: what they do on this rank comes here again, and so do their exchanges.
        if any(_is_wrapper(kind) for kind in types):
            return NotImplemented
        if operation is torch.ops.aten._local_scalar_dense.default and arguments[0].is_meta | _is_fake(arguments[0]):
            return 1.0 if arguments[0].dtype.is_floating_point else 1
        given = operation(*arguments, **(options or {}))
        between = operation.namespace in COMMUNICATION
        if between:
            self._count_sent(operation, arguments)
        for tensor in _tensors(given):
            self._add(tensor, "communication" if between and self.purpose != "weights" else self.purpose)
        return given

    def assign(self, tensors: Iterator[Tensor], purpose: str) -> None:
        """Say what these tensors are for."""
        for tensor in tensors:
            for part in _parts(tensor):
                if known := self._known.get(part.untyped_storage()._cdata):
                    known.purpose = purpose

    def restart(self) -> None:
        """Forget the peak so far, and what was sent."""
        self.peak = self._listed = 0
        self.sent.clear()
        self._note_peak()

    def parts_at_peak(self) -> dict[str, int]:
        """The bytes of the peak by purpose; what came after the last list is `working`."""
        parts: dict[str, int] = defaultdict(int)
        for storage, size in self._at_peak:
            parts[storage.purpose] += size
        parts["working"] += self.peak - sum(parts.values())
        return dict(parts)

    def _count_sent(self, operation: Any, arguments: Any) -> None:
        group = next((each for each in reversed(arguments) if isinstance(each, str)), "")
        for each in arguments:
            if not group and hasattr(each, "type") and str(getattr(each, "type", lambda: "")()).endswith("ProcessGroup"):
                group = _group_name(each)
        if group:
            self.sent[group] += max((_size(each) for each in _tensors(arguments)), default=0)

    def _add(self, tensor: Tensor, purpose: str) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        self._known[key] = LiveStorage(self._rounded(storage.nbytes()), purpose)
        weakref.finalize(storage, self._remove, key)
        self._grow(self._known[key].size)

    def _remove(self, key: int) -> None:
        if gone := self._known.pop(key, None):
            self.live -= gone.size

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """FSDP makes room for whole weights by resizing, and frees it so."""
        known = self._known.get(storage._cdata)
        if known is None:
            return
        found, known.size = known.size, self._rounded(storage.nbytes())
        known.purpose = "gathered"
        self._grow(known.size - found)

    def _grow(self, size: int) -> None:
        self.live += size
        if self.live > self.peak:
            self._note_peak()

    def _note_peak(self) -> None:
        self.peak = max(self.peak, self.live)
        if self.peak > self._listed * SNAPSHOT_GROWTH:
            self._listed = self.peak
            self._at_peak = [(each, each.size) for each in self._known.values() if each.size]

    def _rounded(self, size: int) -> int:
        return -(-size // self._alignment) * self._alignment


def _is_wrapper(kind: type) -> bool:
    """Whether a tensor of this class holds others (DTensor, AsyncCollectiveTensor): it has no memory of its own."""
    return hasattr(kind, "__tensor_flatten__") or kind.__name__ == "AsyncCollectiveTensor"


def _is_fake(tensor: Tensor) -> bool:
    return type(tensor).__name__ == "FakeTensor"


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """The tensors with memory of which one consists."""
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            if isinstance(held := getattr(tensor, name), Tensor):
                yield from _parts(held)
    else:
        yield tensor


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in what an operation takes or gives."""
    if isinstance(value, Tensor):
        yield from _parts(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _group_name(boxed: Any) -> str:
    """The name of a process group that an operation of the namespace c10d has."""
    import torch.distributed as dist

    return str(dist.ProcessGroup.unbox(boxed).group_name)
