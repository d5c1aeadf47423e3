"""Collection: one node's evidence of an incident, in bounded time and size, as complete as possible.

The ranks write their stacks first. The other sources are read in parallel, each in its own thread; the manifest lists
sources without an answer in time as missing.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.diagnosis import figures, flight, folder, health, kernel, native, ranks, stacks
from slipway.trainer.diagnosis.commands import NoEvidence
from slipway.trainer.diagnosis.folder import DiagnosisManifest
from slipway.trainer.diagnosis.ranks import RankSeen
from slipway.trainer.diagnosis.stacks import StackFile
from slipway.trainer.record.claims import Token

SECONDS = 4.0
"""While the ranks hang: nothing else is lost by it."""
AFTER_FAILURE_SECONDS = 1.5
"""After a rank has failed: the time of tools that read a GPU's health."""
AFTER_KILL_SECONDS = 0.3
"""After a rank was killed: a longer collection would delay the next start."""
STACKS_SHARE = 0.5
"""The share of the time in which ranks write their stacks."""
MOST_SECONDS = 10.0

Source = Callable[[float], bytes | dict[str, bytes]]
"""Returns a file's bytes, or several files by name, within the given seconds. Raises NoEvidence, and OSError."""


@dataclass(frozen=True)
class DiagnosedNode:
    """A node of a job, as its own process knows it."""

    store: Path
    """The training's folder."""
    name: str
    stacks: Path | None
    """The folder of the ranks' stacks; None if it could not be made."""
    disks: tuple[Path, ...] = ()
    log: Callable[[], bytes] = bytes
    """The end of the output of the node's processes."""


def collect(node: DiagnosedNode, id: str, why: str, seconds: float) -> bool:
    """Collect and publish this node's evidence of an incident; returns False if it already has. Raises OSError."""
    begun = time.monotonic()
    seconds = min(seconds, MOST_SECONDS)
    deadline = begun + seconds
    token = Token.parse(".".join(id.split(".")[:2]))
    files = stacks.opened(node.stacks, token.generation) if node.stacks else []
    before = stacks.ask(files)
    gathering = _Gathering(_sources(node, files, token), deadline)
    stacks.wait(files, before, seconds * STACKS_SHARE)
    rank_states, texts, missing = _ranks(files, before)
    more, not_gathered = gathering.result()
    contents, too_large = folder.bounded({**texts, **more})
    sizes = {name: len(data) for name, data in contents.items()}
    missing |= {**not_gathered, **too_large}
    took = round(time.monotonic() - begun, 3)
    kernel_lines = tuple(contents.get(KERNEL, b"").decode().splitlines())
    manifest = DiagnosisManifest(node.name, time.time(), took, why, tuple(rank_states), sizes, missing, kernel_lines)
    return folder.write(node.store, id, manifest, contents)


def _ranks(
    files: list[StackFile], before: Mapping[int, int]
) -> tuple[list[RankSeen], dict[str, bytes], dict[str, str]]:
    """Each rank, the file of all stacks, and the ranks without a stack."""
    rank_states = list[RankSeen]()
    texts = list[str]()
    missing = dict[str, str]()
    for file in files:
        written = ""
        with contextlib.suppress(OSError):
            # A rank that is gone has written its stacks when it crashed.
            written = stacks.text(file, before.get(file.rank, 0))
        rank = ranks.observed(file, bool(written), written)
        rank_states.append(rank)
        if written:
            texts.append(f"=== rank {file.rank}, pid {file.pid}, {rank.state} ===\n{_with_source(written)}")
        else:
            missing[f"stacks of rank {file.rank}"] = _why_no_stacks(file, rank, before)
    if not files:
        missing["stacks"] = "no rank of this node has opened a file for them"
    return rank_states, {"stacks.txt": "\n".join(texts).encode()} if texts else {}, missing


def _why_no_stacks(file: StackFile, rank: RankSeen, before: Mapping[int, int]) -> str:
    if rank.ended:
        return "it had ended, and left none"
    if rank.frozen:
        return f"it is {rank.state}, and cannot write"
    return "it did not write them in time" if file.rank in before else "it has no handler for the signal"


def _with_source(written: str) -> str:
    """Stacks with the line of code under each call, if its file can be read."""
    lines = []
    for line in written.splitlines():
        lines.append(line)
        frame = stacks.frame(line)
        if frame and frame.source:
            lines.append(f"    {frame.source}")
    return "\n".join(lines) + "\n"


def _sources(node: DiagnosedNode, files: list[StackFile], token: Token) -> dict[str, Source]:
    """The other sources, by the names of their files."""
    sources: dict[str, Source] = {
        "figures.json": lambda _: figures.last(node.store, token),
        "log.txt": lambda _: node.log(),
        KERNEL: kernel.recent,
        "native.txt": lambda seconds: native.dump(files, seconds),
    }
    if node.stacks is not None:
        where = node.stacks
        sources["flight recorder"] = lambda seconds: flight.dumps(where, seconds)
    health_parts = health.parts((node.store, *node.disks))
    return {**sources, **{f"{HEALTH}{name}": part for name, part in health_parts.items()}}


KERNEL = "kernel.txt"
HEALTH = "health: "
"""Before the name of a part of `health.txt`."""


class _Gathering:
    """Sources that are read in parallel until a deadline."""

    def __init__(self, sources: Mapping[str, Source], deadline: float) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._evidence: dict[str, bytes | dict[str, bytes]] = {}
        self._missing: dict[str, str] = {}
        self._threads = {
            name: threading.Thread(target=self._ask, args=(name, source), daemon=True, name=f"diagnosis {name}")
            for name, source in sources.items()
        }
        for thread in self._threads.values():
            thread.start()

    def result(self) -> tuple[dict[str, bytes], dict[str, str]]:
        """The files by name, and why others are not there."""
        for thread in self._threads.values():
            thread.join(max(0.0, self._deadline - time.monotonic()))
        with self._lock:
            late = self._threads.keys() - self._evidence.keys() - self._missing.keys()
            missing = {**self._missing, **dict.fromkeys(sorted(late), "it took longer than the time there was")}
            return _files(self._evidence), {name.removeprefix(HEALTH): why for name, why in missing.items()}

    def _ask(self, name: str, source: Source) -> None:
        try:
            # A little before the deadline, so that the error of a killed tool still arrives.
            evidence = source(max(0.05, (self._deadline - time.monotonic()) * 0.8))
        except Exception as error:  # nothing here may keep the others from being shown
            with self._lock:
                self._missing[name] = str(error) if isinstance(error, NoEvidence | OSError) else repr(error)
            return
        with self._lock:
            self._evidence[name] = evidence


def _files(evidence: Mapping[str, bytes | dict[str, bytes]]) -> dict[str, bytes]:
    """The parts of the node's health as one file, each other source as its own."""
    files = dict[str, bytes]()
    parts = list[bytes]()
    for name, data in evidence.items():
        if isinstance(data, dict):
            files |= data
        elif name.startswith(HEALTH):
            parts.append(f"=== {name.removeprefix(HEALTH)} ===\n".encode() + data)
        elif data:
            files[name] = data
    return {**files, "health.txt": b"\n".join(parts)} if parts else files
