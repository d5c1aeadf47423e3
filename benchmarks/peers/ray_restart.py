"""The peer of `benchmarks.restart` under Ray Train: the script `benchmarks/peers/restart.py` on a cluster of two nodes.

``PYTHON benchmarks/peers/ray_restart.py CASE FOLDER LAYERS WIDTH LENGTH VOCABULARY EVERY``, by the interpreter of an
environment with Ray and PyTorch; nothing of Slipway is imported. It prints the seconds from the kill to the next step.
The head is a node of its own without processors, as the rendezvous store of ours is. Each worker has a node; of two
workers one is enough, as for ours.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

PATIENCE = 240.0
PIDS = "pids"


def train(options: dict[str, object]) -> None:
    """What each worker does."""
    import restart  # type: ignore[import-not-found]

    folder, sizes = Path(str(options["folder"])), options["sizes"]
    assert isinstance(sizes, list)
    (folder / PIDS).mkdir(exist_ok=True)
    (folder / PIDS / f"{os.environ['RANK']}-{os.getpid()}").touch()
    restart.main(folder, *sizes)


def main(case: str, folder: Path, sizes: list[int]) -> float:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would report to its makers
    import ray  # type: ignore[import-not-found]
    from ray.cluster_utils import Cluster  # type: ignore[import-not-found]

    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "object_store_memory": 10**8})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=10**8) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    controller = ray.remote(num_cpus=0)(_fit).remote(str(folder), sizes)
    try:
        _until(lambda: len(_steps(folder, 0.0)) > 2 * sizes[-1], controller)
        begun = time.time()
        if case == "node":
            cluster.remove_node(nodes[-1], allow_graceful=False)
        else:
            os.kill(max(_pids(folder, "1")), signal.SIGKILL)
        _until(lambda: _steps(folder, begun + 0.5), controller)
        return _steps(folder, begun + 0.5)[0] - begun
    finally:
        ray.shutdown()
        cluster.shutdown()


def _fit(folder: str, sizes: list[int]) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig  # type: ignore[import-not-found]
    from ray.train.torch import TorchConfig, TorchTrainer  # type: ignore[import-not-found]

    TorchTrainer(
        train,
        train_loop_config={"folder": folder, "sizes": sizes},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=(1, 2)),
        run_config=RunConfig(storage_path=f"{folder}/ray", failure_config=FailureConfig(max_failures=-1)),
    ).fit()


def _pids(folder: Path, rank: str) -> list[int]:
    return [int(path.name.split("-")[1]) for path in (folder / PIDS).glob(f"{rank}-*")]


def _steps(folder: Path, since: float) -> list[float]:
    path = folder / "marks.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    marks = [json.loads(line) for line in lines if line.endswith("\n")]
    return [float(mark["t"]) for mark in marks if mark["mark"] == "step" and mark["t"] > since]


def _until(condition, controller) -> None:  # type: ignore[no-untyped-def]
    import ray

    deadline = time.monotonic() + PATIENCE
    while not condition():
        if ray.wait([controller], timeout=0.05)[0]:
            ray.get(controller)
        assert time.monotonic() < deadline, "the peer makes no step"


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), [int(number) for number in sys.argv[3:]])))
