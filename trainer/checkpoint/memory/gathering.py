"""The newest whole state in the memory of the nodes: the ranks agree on it, and give each other its files.

Each rank finds the parts that earlier ranks in its place have left (`slipway.trainer.checkpoint.memory.slots`). A state
counts only if the parts of all its ranks are there; after the loss of a node they are not, and the ranks restore a
checkpoint. The state has the files of a checkpoint and a manifest, which the ranks make from their seals. So the same
reader loads it, and each rank verifies every byte that it uses.
"""

import json
import mmap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from slipway.trainer.base import digest, verify
from slipway.trainer.checkpoint.disk import tensor_table
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.disk.manifest import LAYOUT, CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import Bytes, DamagedCheckpoint, finding_damage
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.checkpoint.memory.slots import Age, HeldPart, complete
from slipway.trainer.node.world import World
from slipway.trainer.record.fence import Token

WHERE = Path("the memory of the nodes")
"""In messages, instead of a folder."""


@dataclass(frozen=True)
class HeldCheckpoint:
    """A state in the memory of the nodes; this rank has the files that it needs."""

    token: Token
    step: int
    contents: Contents


def newest(
    world: World,
    descriptors: Sequence[int],
    incarnation: int,
    least: int,
    needed: Callable[[Contents], Iterable[str]],
    on_fault: Callable[[int, str], None],
) -> HeldCheckpoint | None:
    """The newest state that is whole and verifies, of step `least` or a later one; None if there is none.

    All ranks call it at the same time, each with its own buffers. `needed` names the files that this rank needs.
    `on_fault` is called, on all ranks, with the step of a state that does not verify, and the reason.
    """
    own_parts = dict[Age, tuple[int, HeldPart]]()
    for descriptor in descriptors:
        part = slots.read(descriptor)
        if part and part.incarnation == incarnation and part.step >= least:
            own_parts[part.age] = descriptor, part
    for age in complete(world.all_gather([(age, part.rank, part.size) for age, (_, part) in own_parts.items()])):
        checkpoint = _MemoryCheckpoint(world, *own_parts.get(age, (-1, None)))
        fault = checkpoint.brought(needed)
        if not fault:
            return HeldCheckpoint(checkpoint.token, age[1], checkpoint.contents)
        on_fault(age[1], fault)
    return None


class _MemoryCheckpoint:
    """One state. All ranks construct it, and call `brought`, at the same time."""

    def __init__(self, world: World, descriptor: int, own: HeldPart | None) -> None:
        """`own` is the part in this rank's buffer `descriptor`; None if it has none.

        Every rank gets the tensor tables of all ranks, some tens of kB each, to find its slices.
        """
        self._world = world
        self._buffers = dict[str, memoryview]()
        if own:
            memory = memoryview(mmap.mmap(descriptor, 0, mmap.MAP_PRIVATE))
            self._buffers |= {name: memory[f.begin : f.begin + f.bytes] for name, f in own.files.items()}
        gathered = world.all_gather(
            (own, {name: bytes(data) for name, data in self._buffers.items() if _is_table(name)})
        )
        parts = sorted(((part, rank) for rank, (part, _) in enumerate(gathered) if part), key=lambda pair: pair[0].rank)
        self.token = parts[0][0].token
        self._buffers |= {name: memoryview(data) for _, tables in gathered for name, data in tables.items()}
        self._buffers[PROGRESS] = memoryview(_progress([part for part, _ in parts]))
        files = {name: CheckpointFile(f.bytes, f.blake3) for part, _ in parts for name, f in part.files.items()}
        files[PROGRESS] = CheckpointFile(len(self._buffers[PROGRESS]), digest.of_bytes(self._buffers[PROGRESS]))
        self._holders = {name: rank for part, rank in parts for name in part.files}
        self.contents = Contents(WHERE, CheckpointManifest(LAYOUT, files), read=self._read)

    def brought(self, needed: Callable[[Contents], Iterable[str]]) -> str:
        """Fetch and verify the files that this rank needs; returns the first fault of any rank, or empty."""
        names = set[str]()
        fault = ""
        try:
            names = set(needed(self.contents))
        except DamagedCheckpoint as error:
            fault = str(error)
        self._exchange(names)
        fault = fault or self._fault(names)
        return next(filter(None, self._world.all_gather(fault)), "")

    def _exchange(self, names: Iterable[str]) -> None:
        """Send each requested file from the rank that holds it to the ranks that need it."""
        requests = self._world.all_gather(set(names) - self._buffers.keys())
        for name in sorted(set[str]().union(*requests)):
            self._pass_on(name, [rank for rank, names in enumerate(requests) if name in names])

    def _pass_on(self, name: str, takers: Sequence[int]) -> None:
        owner = self._holders[name]
        rank = self._world.rank
        group = self._world.objects
        together = len(takers) == self._world.size - 1
        if rank != owner and rank not in takers:
            return
        if rank != owner:
            self._buffers[name] = memoryview(bytearray(self.contents.manifest.files[name].bytes))
        tensor = torch.frombuffer(self._buffers[name], dtype=torch.uint8)
        if together:
            dist.broadcast(tensor, owner, group=group)
        elif rank == owner:
            for taker in takers:
                dist.send(tensor, taker, group=group)
        else:
            dist.recv(tensor, owner, group=group)

    def _fault(self, names: Iterable[str]) -> str:
        try:
            for name in names:
                with finding_damage(WHERE / name):
                    verify.data(self._buffers[name], self.contents.manifest.files[name], WHERE / name)
        except DamagedCheckpoint as error:
            return str(error)
        return ""

    def _read(self, name: str, begin: int, count: int | None) -> Bytes:
        return self._buffers[name][begin : None if count is None else begin + count]


def _is_table(name: str) -> bool:
    return name == tensor_table.TYPES or tensor_table.PART.fullmatch(name) is not None


def _progress(parts: Sequence[HeldPart]) -> bytes:
    """The content of progress.json from the parts of all ranks, as the writer of a checkpoint makes it."""
    values: dict[str, Any] = {}
    for part in reversed(parts):
        values |= part.values
    states = [dict(part.random_state) for part in parts]
    return json.dumps({**parts[0].progress, "random_states": states, "values": values}, sort_keys=True).encode()
