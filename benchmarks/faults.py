"""Faults: attacks on the records of a training: damage, folders that are gone, and races of real processes.

``python -m benchmarks.faults [--rounds N]`` prints one JSON line an attack: how often it was tried, how often the
training went on with all that was certain (survived), was refused with a message that names the record (refused), and
lost something that was acknowledged, or ran again what had succeeded (lost). Then how long it takes to seal 10,000
commits. The exit code is 1 when anything was lost.
"""

import argparse
import contextlib
import functools
import itertools
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Exit, Superseded, Token

FORK = multiprocessing.get_context("fork")
SURVIVED, REFUSED, LOST = "survived", "refused", "lost"
COMMITS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often each race is run")
    options = parser.parse_args()
    lost = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        for name, tries in _attacks(Path(folder), options.rounds):
            outcomes = Counter(tries)
            lost += outcomes[LOST]
            counts = {outcome: outcomes[outcome] for outcome in (SURVIVED, REFUSED, LOST)}
            print(json.dumps({"benchmark": "faults", "attack": name, "tried": outcomes.total(), **counts}), flush=True)
        line = {"benchmark": "faults", "metric": f"seal {COMMITS} commits", "unit": "s", "better": "lower"}
        print(json.dumps({**line, "ours": _seal_seconds(Path(folder, "many")), "peers": {}, "aim": 0.1}), flush=True)
    sys.exit(1 if lost else 0)


def _attacks(folder: Path, rounds: int) -> Iterator[tuple[str, Iterator[str]]]:
    """Each attack by its name, with the outcome of each try."""
    for part in ("commits", "claims", "exits", "set-aside"):
        for name, damage in (("truncated", _truncate), ("one byte changed", _flip)):
            yield f"a record in {part}/, {name}", _damaged(folder / f"{part}-{name}", part, damage)
    for part in ("claims", "commits"):
        yield f"{part}/ is gone", _without(folder / f"{part}-gone", part, shutil.rmtree)
        yield f"{part}/ cannot be listed", _without(folder / f"{part}-shut", part, _shut)
    yield "a claim during a commit", (_claim_races_commits(folder / f"commit-{n}") for n in range(rounds))
    yield "a claim during a success", (_claim_races_success(folder / f"success-{n}", n) for n in range(rounds))


def _training(folder: Path) -> Path:
    """Two incarnations, five commits, one of them set aside."""
    _claim(folder, 1)
    for step in (5, 10, 15):
        fence.commit(folder, _commit(step, 1))
    _claim(folder, 2)
    fence.set_aside(folder, _commit(15, 1), "a flipped bit", Token(2))
    for step in (20, 25):
        fence.commit(folder, _commit(step, 2))
    return folder


def _damaged(folder: Path, part: str, damage: Callable[[bytes, int], bytes]) -> Iterator[str]:
    """The outcome with each record of a part damaged at each of ten places."""
    training = _training(folder)
    before = fence.commits(training)
    for path in sorted(path for path in (training / part).iterdir() if path.stat().st_size):
        data = path.read_bytes()
        rest = [commit for commit in before if commit.name != path.stem]
        for tenth in range(10):
            path.write_bytes(damage(data, tenth * len(data) // 10))
            with tempfile.TemporaryDirectory() as scratch:
                copy = shutil.copytree(training, Path(scratch, "training"))
                yield _outcome(functools.partial(_next_start, Path(copy)), [before, rest])
        path.write_bytes(data)


def _next_start(training: Path) -> list[Commit]:
    """The commits that the next incarnation begins with."""
    assert _claim(training, 3)
    return fence.commits(training)


def _without(folder: Path, part: str, remove: Callable[[Path], object]) -> Iterator[str]:
    """The outcome of each reader and of a claim, with a folder away."""
    training = _training(folder)
    before = fence.commits(training)
    remove(training / part)
    yield _outcome(lambda: fence.commits(training), [before])
    yield _outcome(functools.partial(_next_start, training), [before])


def _claim_races_commits(folder: Path) -> str:
    """A process commits as fast as it can until it is superseded; what was reported as kept must be kept."""
    _claim(folder, 1)
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_commit_until_superseded, args=(folder, sender))
    process.start()
    sender.close()
    acknowledged = [receiver.recv() for _ in range(3)]
    _claim(folder, 2)
    with contextlib.suppress(EOFError):
        while True:
            acknowledged.append(receiver.recv())
    process.join()
    counts = {commit.name for commit in fence.commits(folder)}
    return SURVIVED if counts.issuperset(acknowledged) else LOST


def _commit_until_superseded(folder: Path, commits: Connection) -> None:
    with contextlib.suppress(Superseded):
        for step in itertools.count(1):
            fence.commit(folder, _commit(step, 1))
            commits.send(_commit(step, 1).name)


def _claim_races_success(folder: Path, seed: int) -> str:
    """A process records its success while another claims: one of the two, never both."""
    _claim(folder, 1)
    process = FORK.Process(target=_succeed, args=(folder,))
    process.start()
    time.sleep(random.Random(seed).uniform(0.0, 0.01))
    claimed = _claim(folder, 2)
    process.join()
    return LOST if claimed and process.exitcode == 0 else SURVIVED


def _succeed(folder: Path) -> None:
    try:
        fence.end(folder, Exit(1, "succeeded", "all steps done", 20, "trainer", time.time()), Token(1))
    except Superseded:
        os._exit(1)


def _seal_seconds(folder: Path) -> float:
    _claim(folder, 1)
    for step in range(COMMITS):
        (folder / "commits" / f"{_commit(step, 1).name}.json").touch()
    _claim(folder, 2)
    begun = time.perf_counter()
    _claim(folder, 3)
    return time.perf_counter() - begun


def _outcome(read: Callable[[], object], expected: list[list[Commit]]) -> str:
    try:
        return SURVIVED if read() in expected else LOST
    except (OSError, ValueError) as error:
        return REFUSED if str(error) else LOST


def _truncate(data: bytes, offset: int) -> bytes:
    return data[:offset]


def _flip(data: bytes, offset: int) -> bytes:
    return data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]


def _shut(folder: Path) -> None:
    """What cannot be listed, for root too."""
    folder.rename(folder.with_name(f"{folder.name}-before"))
    folder.touch()


def _claim(folder: Path, incarnation: int) -> bool:
    return fence.claim(folder, Token(incarnation), nodes=("node-0",), cause="an attack", by="benchmark")


def _commit(step: int, incarnation: int) -> Commit:
    return Commit(step, Token(incarnation), f"checkpoints/{step}", "0" * 64, {"loss": 1.5}, 12.0)


if __name__ == "__main__":
    main()
