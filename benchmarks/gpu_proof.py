"""One GPU, at most eight minutes: every CUDA path of the trainer, cheapest first, each part in a process of its own.

``python -m benchmarks.gpu_proof [--device cuda|cpu] [--only PART ...] [--out FOLDER] [--seconds N]``: a JSON line for
each part as soon as it is known, {part, ok, seconds, ...}; FOLDER/proof.jsonl has them too. A part that fails or takes
longer than its limit keeps what it has found so far, and the next one goes on. What does not fit into the rest of the
budget is `skipped`, as is on a CPU what only a GPU can show. Exit code 1 says that a part failed.

On a machine without a GPU it says so and proves nothing, unless `--device cpu` asks for the same parts on a CPU. It
needs the checkout, Python 3.11 or newer, PyTorch 2.11 or newer, and what a node of a training imports; no network.
"""

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUDGET_SECONDS = 480.0
LEAST_SECONDS = 5.0
"""A part is not begun with less than this, in which its imports alone would not end."""
TAIL_CHARACTERS = 1500
"""So many characters of what a part that failed said last."""


@dataclass(frozen=True)
class Part:
    """One part of the proof: the function of its name in a module of `benchmarks.proofs`."""

    module: str
    limit: float
    """Seconds that it may take."""


PARTS = {
    "environment": Part("processes", 25),
    "operations": Part("kernels", 40),
    "attention": Part("kernels", 45),
    "fork": Part("processes", 45),
    "connection": Part("processes", 100),
    "stale": Part("processes", 60),
    "fp8": Part("kernels", 40),
    "copies": Part("processes", 40),
    "sharded": Part("training", 120),
    "product": Part("product", 120),
    "step": Part("training", 150),
}
"""Cheapest first; the last ones give way where the budget ends before all of them."""
CPU_FACTOR = 2.0
"""How much longer a part may take where its device is a CPU, whose small sizes a busy machine may keep waiting."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_proof")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--out", type=Path, default=os.environ.get("OUT"), help="a folder for proof.jsonl (default: $OUT)"
    )
    parser.add_argument("--seconds", type=float, default=BUDGET_SECONDS, help="for all parts together (default: 480)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return run_here(options.part, options.device)
    if options.device == "cuda" and not has_gpu():
        print("benchmarks.gpu_proof: nothing is proved, as there is no GPU here; see --device cpu", file=sys.stderr)
        return 0
    ended = time.monotonic() + options.seconds
    results = [printed(result_of(part, options.device, ended - time.monotonic()), options.out) for part in options.only]
    return int(any(result["ok"] is False for result in results))


def has_gpu() -> bool:
    """Asked in a process of its own: no part must inherit what the question leaves."""
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", question], stderr=subprocess.DEVNULL).returncode == 0


def result_of(part: str, device: str, budget: float) -> dict[str, Any]:
    """Run a part in a process of its own; its line. `budget`: seconds of the budget."""
    limit = PARTS[part].limit * (CPU_FACTOR if device == "cpu" else 1.0)
    if budget < LEAST_SECONDS:
        return {"part": part, "ok": None, "seconds": 0.0, "skipped": f"{max(budget, 0.0):.0f} s of the budget are left"}
    limit, begun = min(limit, budget), time.monotonic()
    command = [sys.executable, "-m", "benchmarks.gpu_proof", "--part", part, "--device", device]
    # As ranks on CPUs have it: threads that wait for one another's cores take longer than one thread.
    environment = {**os.environ, **({"OMP_NUM_THREADS": "1"} if device == "cpu" else {})}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes)
    try:
        out, errors = process.communicate(timeout=limit)
        late = ""
    except subprocess.TimeoutExpired:
        late = f"took longer than {limit:.0f} s"
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
    return {
        "part": part,
        "ok": True,
        "seconds": round(time.monotonic() - begun, 1),
        **outcome(out, errors, process, late),
    }


def outcome(out: str, errors: str, process: "subprocess.Popen[str]", late: str) -> dict[str, Any]:
    """What a part has printed, and why it failed, if it did."""
    figures: dict[str, Any] = {}
    for line in out.splitlines():
        if line.startswith("{"):
            figures |= json.loads(line)
    if late or (process.returncode and "error" not in figures):
        last = errors[-TAIL_CHARACTERS:]
        figures |= {"ok": False, "error": late or f"ended with {process.returncode}", "said": last}
    return figures


def printed(result: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """Print a line, and keep it: nothing is lost when the rest is cut off."""
    line = json.dumps(result, default=str)
    print(line, flush=True)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "proof.jsonl").open("a") as file:
            file.write(line + "\n")
    return result


def run_here(part: str, device: str) -> int:
    """Run a part in this process, and print each figure as soon as it is found."""
    import torch

    from benchmarks.proofs.scene import Figures, Scene, Unprovable

    run: Callable[[Scene], Figures] = getattr(importlib.import_module(f"benchmarks.proofs.{PARTS[part].module}"), part)
    scene = Scene(torch.device("cuda", 0) if device == "cuda" else torch.device("cpu"))
    try:
        for figures in run(scene):
            print(json.dumps(figures, default=str), flush=True)
    except Unprovable as why:
        print(json.dumps({"ok": None, "skipped": str(why)}), flush=True)
    except BaseException:
        print(json.dumps({"ok": False, "error": traceback.format_exc()[-TAIL_CHARACTERS:]}), flush=True)
    os._exit(0)  # threads of torch that wait for what was aborted would keep the process


if __name__ == "__main__":
    sys.exit(main())
