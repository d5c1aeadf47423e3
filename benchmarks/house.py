"""The house itself: how long a developer waits for it, how fast it starts, and how its rooms hang together.

``python -m benchmarks.house [--rounds N] [--without test ...]`` prints seconds of `make check` and `make test`, of
`slipway --help` beside the help of other commands, CPU-seconds until a sensor's module is imported (beside Dagster
alone) and until a rank has its optimiser (beside torch alone), and the numbers of rooms, of arrows between them and of
circles. A room is a package; an arrow is an import from a module of one room to a module of another.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grimp
import networkx  # comes with torch

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
RANK = """
import slipway.trainer.loop
from torch import nn
from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.step import optimizers
optimizers.build(nn.Linear(8, 8), OptimizerConfig(kind="adamw", learning_rate=1e-3))
"""
"""What every rank of a training imports before its first step."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.house", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of the short measurements (default: 5)")
    parser.add_argument("--without", nargs="*", choices=("check", "test"), default=[], help="commands to leave out")
    options = parser.parse_args()
    starts(options.rounds)
    rooms()
    for target, aim in (("check", 60.0), ("test", 360.0)):
        if target not in options.without:
            show(f"make {target}", "s", seconds(["make", target]), {}, aim)


def starts(rounds: int) -> None:
    """Print how long the command, a sensor and a rank take to start; the median of the rounds."""

    def wall(*command: str) -> float:
        return statistics.median(seconds(command) for _ in range(rounds))

    def processor(program: str) -> float:
        return statistics.median(cpu_seconds([sys.executable, "-c", program]) for _ in range(rounds))

    peers = {name: wall(str(BIN / name), "--help") for name in ("dagster", "mlflow")}
    show("slipway --help", "s", wall(str(BIN / "slipway"), "--help"), peers, 0.3)
    show(
        "import of a sensor",
        "CPU-s",
        processor("import slipway.sensors.job_watch"),
        {"dagster": processor("import dagster")},
    )
    show("imports of a rank", "CPU-s", processor(RANK), {"torch": processor("import torch")}, 1.3)


def rooms() -> None:
    """Print the numbers of rooms, arrows and circles."""
    graph = grimp.build_graph("slipway")
    room = {module: module if graph.find_children(module) else module.rpartition(".")[0] for module in graph.modules}
    arrows = networkx.DiGraph(
        (room[importer], room[imported])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if room[importer] != room[imported]
    )
    show("rooms", "packages", len(set(room.values())), {})
    show("arrows between rooms", "imports", arrows.number_of_edges(), {})
    show("circles between siblings", "circles", circles(graph), {}, 0)


def circles(graph: grimp.ImportGraph) -> int:
    """The circles among the children of each package: what `.importlinter` allows none of."""
    count = 0
    for package in (module for module in graph.modules if graph.find_children(module)):
        child = {
            module: ".".join(module.split(".")[: package.count(".") + 2])
            for module in graph.modules
            if module.startswith(f"{package}.")
        }
        arrows = networkx.DiGraph(
            (child[importer], child[imported])
            for importer in child
            for imported in graph.find_modules_directly_imported_by(importer)
            if imported in child and child[importer] != child[imported]
        )
        count += sum(len(component) > 1 for component in networkx.strongly_connected_components(arrows))
    return count


def seconds(command: list[str] | tuple[str, ...]) -> float:
    """How long a command takes. Raises CalledProcessError when it fails."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def cpu_seconds(command: list[str]) -> float:
    """Processor time of a command, user and system. Raises CalledProcessError when it fails."""
    used: Callable[[], float] = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])  # noqa: E731
    before = used()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return used() - before


def show(metric: str, unit: str, value: float, peers: dict[str, float], aim: float | None = None) -> None:
    line = {"benchmark": "house", "metric": metric, "unit": unit, "better": "lower", "ours": value, "peers": peers}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
