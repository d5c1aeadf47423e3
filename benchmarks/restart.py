"""From the kill of a rank to the next committed step, under torchrun with two ranks: ours beside a bare DDP script.

``python -m benchmarks.restart [--kills N]``: a rank is sent SIGKILL while both train; torchrun ends the other and
starts both anew. The time is split by part: until the new processes exist, until they have imported and met, until
data and model are ready, until the checkpoint is loaded, the first step, and the first commit after it. Both have a
model of about the same size and save every few steps.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers import steps
from trainer.base import atomic, processes
from trainer.config import resolved
from trainer.config.operation import Layout
from trainer.config.sections import Batch
from trainer.models.decoder import DecoderShape
from trainer.record import ledger

EVERY, RANKS, PATIENCE = 5, 2, 180.0
SMALL = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
BATCH = Batch(sequences=4, length=128, micro=4)
PARTS = ("exec", "import and join", "data and model", "load", "step", "commit")
Marks = list[tuple[str, float]]
"""What has happened and when, in order, by the names in `PARTS`."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart")
    parser.add_argument("--kills", type=int, default=3)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as name:
        ours, bare = _ours(Path(name), kills), _bare(Path(name) / "bare", kills)
    _print("kill to next committed step", sum(ours.values()), sum(bare.values()))
    for part in PARTS:
        _print(f"kill to next committed step: {part}", ours[part], bare[part])


def _ours(folder: Path, kills: int) -> dict[str, float]:
    settings = steps.settings(folder, SMALL, BATCH, Layout(), "fp32")
    settings = replace(settings, checkpoint=replace(settings.checkpoint, every=EVERY))
    path, store = folder / "config.json", Path(settings.placement.store)
    path.write_bytes(atomic.readable_json(resolved.dump(settings)))
    return _recoveries(["-m", "trainer", str(path)], lambda since: _our_marks(store, since), kills)


def _bare(folder: Path, kills: int) -> dict[str, float]:
    folder.mkdir()
    sizes = [str(size) for size in (SMALL.layers, SMALL.width, BATCH.length, steps.VOCABULARY, EVERY)]
    script = str(Path(__file__).parent / "peers" / "restart.py")
    return _recoveries([script, str(folder), *sizes], lambda since: _bare_marks(folder, since), kills)


def _our_marks(store: Path, since: float) -> Marks:
    """From the heartbeats' phases and the ledger."""
    found: Marks = []
    for path in store.glob("heartbeats/*.00000.json"):
        beat = json.loads(path.read_bytes())
        if beat["at"] > since:
            names = {"staging": "import and join", "building": "import and join", "restoring": "data and model"}
            found += [(names[beat["phase"]], beat["at"])] if beat["phase"] in names else []
    names = {"restored": "load", "step": "step", "committed": "commit"}
    found += [(names[e["event"]], e["t"]) for e in ledger.read(store) if e["event"] in names and e["t"] > since]
    return found


def _bare_marks(folder: Path, since: float) -> Marks:
    names = {
        "joined": "import and join",
        "built": "data and model",
        "loaded": "load",
        "step": "step",
        "saved": "commit",
    }
    path = folder / "marks.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    events = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(names[event["mark"]], event["t"]) for event in events if event["t"] > since]


def _recoveries(arguments: Sequence[str], marks: Callable[[float], Marks], kills: int) -> dict[str, float]:
    """The median seconds of each part over the kills of one job."""
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={RANKS}"]
    restarts = [f"--max-restarts={kills}", "--monitor-interval=0.1"]
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    job = subprocess.Popen(
        [sys.executable, "-m", *agent, *restarts, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until_marked(job, marks, 0.0, set())
        parts = [_recovery(job, marks) for _ in range(kills)]
    finally:
        below = processes.descendants(job.pid)
        for pid in (job.pid, *below):
            os.kill(pid, signal.SIGKILL)
        job.wait()
    return {part: statistics.median(each[part] for each in parts) for part in PARTS}


def _recovery(job: subprocess.Popen[bytes], marks: Callable[[float], Marks]) -> dict[str, float]:
    """Kill a rank; the seconds of each part until the next commit."""
    old = set(processes.children(job.pid))
    begun = time.time()
    os.kill(max(old), signal.SIGKILL)
    seen = _until_marked(job, marks, begun, old)
    parts, before = {}, begun
    for part in PARTS:
        at = max(before, seen.get(part, before))
        parts[part], before = at - before, at
    return parts


def _until_marked(
    job: subprocess.Popen[bytes], marks: Callable[[float], Marks], begun: float, old: set[int]
) -> dict[str, float]:
    """When each part was first over, watched until a commit of the new processes."""
    deadline, seen = time.monotonic() + PATIENCE, dict[str, float]()
    while "commit" not in seen:
        assert time.monotonic() < deadline and job.poll() is None, "the job does not come back"
        if "exec" not in seen and set(processes.children(job.pid)) - old:
            seen["exec"] = time.time()
        for part, at in marks(max(begun, seen.get("exec", begun))) if "exec" in seen else ():
            if part != "commit" or "step" in seen:
                seen.setdefault(part, at)
        time.sleep(0.01)
    return seen


def _print(metric: str, ours: float, bare: float) -> None:
    line = {"benchmark": "restart", "metric": metric, "unit": "s", "better": "lower"}
    peers = {"bare DDP script under torchrun": bare}
    print(json.dumps({**line, "ours": ours, "peers": peers, "aim": bare if ":" not in metric else None}), flush=True)


if __name__ == "__main__":
    main()
