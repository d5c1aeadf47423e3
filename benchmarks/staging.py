"""Staging beside cp -r (which verifies nothing: the limit), rsync -a with a BLAKE3 check after it, and rclone.

All copy the same shards between two folders of one file system, in turn, and none of them syncs. Peers that are not
installed are left out. Each copies with the source in the page cache, and without. The last row is what a window
costs that moves ahead of the steps: how long a step waits for its data, beside a snapshot that is staged whole.
"""

import argparse
import dataclasses
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from slipway.trainer.base import digest
from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences
from slipway.trainer.loading.batches import Batches
from slipway.trainer.loading.order import Order
from slipway.trainer.loading.sources import Sources
from slipway.trainer.loading.window import DataCourse, ShardWindow
from slipway.trainer.objects.origins import Folder
from slipway.trainer.staging import leases
from slipway.trainer.staging.stage import stage

MEGABYTE = 1_000_000
SMALLEST, LARGEST = 16, 256
WINDOW_SHARD = 8 << 20
MANY = 1000
"""Shards of the second staging and of the change."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.staging", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2000, help="size of the snapshot")
    parser.add_argument("--window", action="store_true", help="measure the window alone")
    parser.add_argument("--rounds", type=int, default=3, help="how often each copies; the median counts")
    parser.add_argument("--folder", type=Path, help="where to work; a folder of its own below it is removed again")
    options = parser.parse_args()
    if options.window:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            _window(Path(folder), options.rounds)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _copies(Path(folder), options.megabytes, options.rounds)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _second_staging(Path(folder))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        _window(Path(folder), options.rounds)


def _copies(folder: Path, megabytes: int, rounds: int) -> None:
    """GB/s of each, warm and cold."""
    durable, target = folder / "durable", folder / "target"
    draw = np.random.default_rng(0)
    snapshot = _snapshot(durable, draw, list(_sizes(draw, megabytes * MEGABYTE)))
    size = sum(shard.bytes for shard in snapshot.shards())
    (folder / "sums").write_text("".join(f"{one.blake3}  {one.blake3}.shard\n" for one in snapshot.shards()))
    contestants = _contestants(snapshot.sha256, folder)
    os.sync()
    for cold in (False, True):
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(rounds):
            order = list(contestants)
            for name in order[number % len(order) :] + order[: number % len(order)]:
                _prepare(durable / "shards", target, cold)
                seconds[name].append(_seconds(functools.partial(contestants[name], target)))
        rates = {name: size / statistics.median(times) / 1e9 for name, times in seconds.items()}
        value = rates.pop("slipway")
        aim = max(0.9 * rates["cp -r"], 2 * rates.get("rsync -a + b3sum", 0.0))
        files = f"{size / 1e9:.1f} GB in {len(snapshot.shards())} shards, {'cold' if cold else 'warm'} page cache"
        _print(f"verified staging, {files}", "GB/s", "higher", value, rates, aim)


def _contestants(sha256: str, folder: Path) -> dict[str, Callable[[Path], object]]:
    """Each brings the shards of `folder`/durable to a target that is not there."""
    durable, source = folder / "durable", str(folder / "durable" / "shards")
    contestants: dict[str, Callable[[Path], object]] = {
        "slipway": lambda target: stage(sha256, durable, target),
        "cp -r": lambda target: _run("cp", "-r", source, str(target)),
    }
    if _installed("rsync") and _installed("b3sum"):
        contestants["rsync -a + b3sum"] = lambda target: _rsync_and_check(source, target, folder / "sums")
    if _installed("rclone"):
        contestants["rclone copy --checksum"] = lambda target: _run("rclone", "copy", "--checksum", source, str(target))
    return contestants


def _rsync_and_check(source: str, target: Path, sums: Path) -> None:
    _run("rsync", "-a", f"{source}/", str(target))
    _run("b3sum", "--check", "--quiet", str(sums), cwd=target)


def _second_staging(folder: Path) -> None:
    """Milliseconds of a staging that finds all in place; then the bytes that move when one shard in 100 changes."""
    durable, nvme = folder / "durable", folder / "nvme"
    draw = np.random.default_rng(1)
    sizes = [64_000] * MANY
    old = _snapshot(durable, draw, sizes)
    stage(old.sha256, durable, nvme)
    value = statistics.median(_seconds(lambda: stage(old.sha256, durable, nvme)) for _ in range(20))
    peers = {}
    for name in ("rsync -a", "rclone copy --checksum"):
        command = (*name.split(), f"{durable}/", str(folder / "peer"))
        if _installed(command[0]):
            _run(*command)
            peers[name] = 1000 * statistics.median(_seconds(functools.partial(_run, *command)) for _ in range(3))
            shutil.rmtree(folder / "peer")
    _print(f"second staging of {MANY} shards", "ms", "lower", 1000 * value, peers, 20)
    changed = _snapshot(durable, draw, sizes[: MANY // 100]).splits["train"].shards
    train = (*changed, *old.splits["train"].shards[len(changed) :])
    new = dataclasses.replace(old, splits={"train": dataclasses.replace(old.splits["train"], shards=train)})
    shards.write_manifest(durable, new)
    staged = stage(new.sha256, durable, nvme)
    share = staged.copied_bytes / staged.bytes
    _print("bytes moved after 1 % of the shards changed", "share of the snapshot", "lower", share, {}, 0.011)


def _window(folder: Path, rounds: int) -> None:
    """Milliseconds that a step waits for its samples: with a window an eighth of the snapshot, and staged whole.

    Steps of 20 ms read 2 MB each (100 MB/s), through all of the data once. The first step is left out: it waits for
    the first shards, where the other waited before it.
    """
    durable, draw = folder / "durable", np.random.default_rng(2)
    tokens = WINDOW_SHARD // 2 - 8
    snapshot = _described(
        durable,
        tuple(shards.write_shard(durable, [draw.integers(0, 65536, tokens, np.uint16)], "uint16") for _ in range(64)),
    )
    seconds: dict[str, list[float]] = {"window": [], "whole": []}
    for number in range(rounds):
        whole_copy, part = folder / f"whole-{number}", folder / f"window-{number}"
        stage(snapshot.sha256, durable, whole_copy)
        course = _course(Sequences(whole_copy, snapshot, "train", 2047))
        seconds["whole"].append(_wait(course, Sequences(whole_copy, snapshot, "train", 2047), None))
        window = ShardWindow(course, (), 8 * WINDOW_SHARD, Sources("node", {}, {}, [Folder(durable)]), part)
        window.hold(leases.hold(part, snapshot.sha256))
        window.start(0)
        seconds["window"].append(_wait(course, Sequences(part, snapshot, "train", 2047, window.bring), window))
        window.release()
        shutil.rmtree(whole_copy)
    value, whole_wait = (1000 * statistics.median(seconds[name]) for name in ("window", "whole"))
    metric = "a step's wait for data, window of 1/8 of 537 MB"
    _print(metric, "ms", "lower", value, {"staged whole": whole_wait}, whole_wait + 1)


def _course(samples: Sequences) -> DataCourse:
    order = Order(samples.sizes, 1, 2)
    return DataCourse(order, samples.shards, 512, len(order) // 512)


def _wait(course: DataCourse, samples: Sequences, window: ShardWindow | None) -> float:
    """The mean seconds for which a step waited for its samples."""

    def close_behind(step: int) -> None:
        samples.opened.close_others(course.at_once(step))

    batches = Batches(samples, course.order, 512, slice(0, 512), course.steps, begins=close_behind)
    waited = 0.0
    for step in range(course.steps):
        if window is not None:
            window.move(step)
        seconds = _seconds(functools.partial(batches.windows, step))
        waited += seconds if step else 0.0
        time.sleep(0.02)
    return waited / (course.steps - 1)


def _snapshot(durable: Path, draw: np.random.Generator, sizes: list[int]) -> shards.TextSnapshot:
    """A snapshot of random tokens, one document a shard."""
    return _described(durable, tuple(_shard(durable, draw, size) for size in sizes))


def _described(durable: Path, written: tuple[shards.TokenShard, ...]) -> shards.TextSnapshot:
    tokens = sum(shard.tokens for shard in written)
    split = shards.TokenSplit(len(written), tokens, tokens, written)
    tokenizer = shards.TokenizerRecord("0" * 64, 65536, 0)
    snapshot = shards.TextSnapshot("random", "0" * 64, {"kind": "random"}, {}, tokenizer, "uint16", {"train": split})
    shards.write_manifest(durable, snapshot)
    return snapshot


def _shard(durable: Path, draw: np.random.Generator, size: int) -> shards.TokenShard:
    data = draw.bytes(size)
    shard = shards.TokenShard(digest.of_bytes(data), size, size // 2, 1)
    path = shards.shard_path(durable, shard)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return shard


def _sizes(draw: np.random.Generator, total: int) -> Iterator[int]:
    """Sizes that add up to the total, drawn evenly over the magnitudes between the smallest and the largest."""
    while total > 0:
        magnitude = draw.uniform(np.log(SMALLEST), np.log(LARGEST))
        size = min(total, int(np.exp(magnitude) * MEGABYTE))
        yield size
        total -= size


def _prepare(source: Path, target: Path, cold: bool) -> None:
    """Have the files in the page cache, or none of their bytes, and memory at hand for the copy.

    A virtual machine gets memory from its host page by page when it is first touched, which takes longer than the
    copy. So a copy is made, and removed, just before the one that is measured.
    """
    os.sync()
    shutil.rmtree(target, ignore_errors=True)
    _run("cp", "-r", str(source), str(target))
    if cold:
        for path in source.iterdir():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    shutil.rmtree(target)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _run(*command: str, cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _installed(program: str) -> bool:
    if shutil.which(program):
        return True
    print(f"staging: {program} is not installed: left out", file=sys.stderr)
    return False


def _print(metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float) -> None:
    line = {"benchmark": "staging", "metric": metric, "unit": unit, "better": better}
    print(json.dumps({**line, "ours": value, "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
