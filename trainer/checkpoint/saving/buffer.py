"""The buffer: shared memory into which a rank copies its chunks of a checkpoint, for its writer process to read.

All chunks go into one memfd in the order of the files, headers included, so each file is a range of bytes in it. Every
save uses the buffer again: its pages are allocated once, before the first save, and pinned for a GPU. When the copy is
complete, a thread hashes and seals it (`slipway.trainer.checkpoint.memory.slots`). If the memfd belongs to the node's
supervisor, the state outlives the rank, until the next rank copies another one.

`hold` copies a state that no tier gets: it is in the memory of its node alone.
"""

import contextlib
import ctypes
import dataclasses
import mmap
import os
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from blake3 import blake3
from torch import Tensor

from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.checkpoint.memory.slots import HeldFile, HeldPart
from slipway.trainer.checkpoint.saving import random_state
from slipway.trainer.checkpoint.state import TrainingState
from slipway.trainer.node.world import World
from slipway.trainer.record.fence import Token

if TYPE_CHECKING:
    from slipway.trainer.checkpoint.saving.planning import PartPlan

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of <linux/mman.h>; before Linux 5.14 the first copy allocates the pages
_libc = ctypes.CDLL(None)


class Buffer:
    """Shared memory for one checkpoint of a rank at a time; `fd` is its memfd."""

    def __init__(self, descriptor: int | None = None) -> None:
        """`descriptor`: a memfd, which may hold a state already; a new one if None."""
        self.fd = os.memfd_create("checkpoint", 0) if descriptor is None else descriptor
        part = slots.read(self.fd)
        self.age = part.age if part else (-1, -1)
        """The age of the state that it holds (`HeldPart.age`); (-1, -1) if it holds none."""
        self._sealing: threading.Thread | None = None
        self._plan: PartPlan | None = None
        self._memory: Tensor | None = None
        self._preparing: threading.Thread | None = None
        self._registered = False

    def prepare(self, plan: "PartPlan", device: torch.device) -> None:
        """Make room for `plan` and write its headers. A thread allocates the pages meanwhile, without the GIL."""
        if plan is self._plan:
            return
        self.wait()
        self._unregister()
        if not self._has_room_for(plan):
            self.age = (-1, -1)
            os.ftruncate(self.fd, 0)
            os.ftruncate(self.fd, max(plan.size, mmap.PAGESIZE))
        self._memory = torch.frombuffer(mmap.mmap(self.fd, max(plan.size, mmap.PAGESIZE)), dtype=torch.uint8)
        for section in plan.sections:
            os.pwrite(self.fd, section.header, section.begin)
        self._plan = plan
        self._preparing = threading.Thread(target=self._allocate_pages, args=(device,), daemon=True)
        self._preparing.start()

    def _has_room_for(self, plan: "PartPlan") -> bool:
        """Whether it has the layout of this plan, so that its state can stay until the next copy."""
        if os.fstat(self.fd).st_size < max(plan.size, mmap.PAGESIZE):
            return False
        return all(os.pread(self.fd, len(section.header), section.begin) == section.header for section in plan.sections)

    def wait(self) -> None:
        """Wait until the pages are allocated and the state is sealed."""
        for thread in (self._preparing, self._sealing):
            if thread:
                thread.join()
        self._preparing = self._sealing = None

    def copy(self, state: TrainingState, device: torch.device) -> None:
        """Copy the plan's chunks of `state`; all copies are complete on return."""
        assert self._plan is not None and self._memory is not None
        self.wait()
        self.age = (-1, -1)
        os.ftruncate(self.fd, max(self._plan.size, mmap.PAGESIZE))  # removes the seal
        if device.type == "cuda":
            self._copy_from_gpu(state, device)
        else:
            self._copy_chunks(state)

    def write_request(self, request: dict[str, Any]) -> tuple[int, int]:
        """Write a request for the writer behind the chunks; returns its first byte and its length."""
        assert self._plan is not None
        data = atomic.canonical_json(request)
        begin = max(self._plan.size, mmap.PAGESIZE)
        os.ftruncate(self.fd, begin + len(data))
        os.pwrite(self.fd, data, begin)
        return begin, len(data)

    def seal(self, part: HeldPart) -> None:
        """Start a thread that seals the copy as `part`, with the hashes of its files."""
        self.age = part.age
        self._sealing = threading.Thread(target=self._seal, args=(part,), daemon=True)
        self._sealing.start()

    def _seal(self, part: HeldPart) -> None:
        assert self._plan is not None
        memory = memoryview(mmap.mmap(self.fd, self._plan.size, prot=mmap.PROT_READ))
        pieces = {section.name: memory[section.begin : section.begin + section.size] for section in self._plan.sections}
        hashed = {name: blake3(piece).hexdigest() for name, piece in pieces.items()}
        files = {
            section.name: HeldFile(section.begin, section.size, hashed[section.name]) for section in self._plan.sections
        }
        with contextlib.suppress(ValueError):  # a figure that is not finite has no JSON: the state stays unsealed
            slots.write(self.fd, dataclasses.replace(part, files=files))

    def close(self) -> None:
        self.wait()
        self._unregister()
        os.close(self.fd)

    def _copy_from_gpu(self, state: TrainingState, device: torch.device) -> None:
        """Start all copies together, so that they use the whole link, after the GPU's work on the tensors."""
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._copy_chunks(state)
        stream.synchronize()

    def _copy_chunks(self, state: TrainingState) -> None:
        # Imported here and not at the start, because it takes 0.8 s of CPU.
        from torch.distributed.checkpoint.utils import find_state_dict_object

        assert self._plan is not None and self._memory is not None
        tensors = dict(state.tensors)
        with torch.no_grad():
            for piece in self._plan.pieces:
                source = find_state_dict_object(tensors, piece.item.index)
                end = piece.begin + source.numel() * source.element_size()
                target = self._memory[piece.begin : end].view(source.dtype).view(source.shape)
                target.copy_(source, non_blocking=self._registered)

    def _allocate_pages(self, device: torch.device) -> None:
        assert self._memory is not None
        pointer = self._memory.data_ptr()
        size = self._memory.numel()
        _libc.madvise(ctypes.c_void_p(pointer), ctypes.c_size_t(size), _POPULATE_WRITE)
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._registered = int(_cudart().cudaHostRegister(pointer, size, 0)) == 0

    def _unregister(self) -> None:
        if self._registered and self._memory is not None:
            _cudart().cudaHostUnregister(self._memory.data_ptr())
            self._registered = False


def held_part(token: Token, world: World, state: TrainingState, progress: TrainingProgress) -> HeldPart:
    """The description of a rank's buffer with a copy of `state`, without its files."""
    identity = token.incarnation, token.generation, progress.step, world.rank, world.size
    rank_zero_progress = asdict(progress) if world.is_rank_zero else {}
    return HeldPart(*identity, {}, random_state.take(), dict(state.values), rank_zero_progress)


def hold(
    buffers: Sequence[Buffer],
    free: Sequence[Buffer],
    plan: "PartPlan",
    state: TrainingState,
    device: torch.device,
    part: HeldPart,
) -> None:
    """Copy `state` into a free buffer and seal it; do nothing if that would overwrite the newest state."""
    newest = max(buffers, key=lambda buffer: buffer.age)
    buffer = next((candidate for candidate in free if candidate is not newest), None)
    if buffer is not None:
        newest.wait()  # otherwise no state would be sealed if steps are shorter than the hashing
        buffer.prepare(plan, device)
        buffer.copy(state, device)
        buffer.seal(part)


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
