"""A job of Ray alone, as an ordinary person writes it around a trainer: ``PYTHON ray_job.py LOGGED HOLD``.

It runs by an environment with Ray Train; nothing of Slipway is imported. Two workers report the figures of each step of
the training that LOGGED (`benchmarks.peers.logged`) has; one of them kills itself half-way, and the job's own retry
goes on. What a script knows of the dataset, the search and the champion it prints, which Ray keeps as the job's log.
HOLD is a file: while it is there, the training runs on.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any


def train(options: dict[str, Any]) -> None:
    """What each worker does."""
    from ray import train as of  # type: ignore[import-not-found]

    logged, rank = json.loads(Path(options["logged"]).read_text()), of.get_context().get_world_rank()
    killed, running = Path(options["hold"]).with_name("killed"), logged["running"]
    steps = running["steps"]
    half = len(steps) // 2
    for figures in steps[half:] if killed.exists() else steps[:half]:
        if rank == 0:
            print(f"step {int(figures['step'])} of {running['total']}:", json.dumps(figures), flush=True)
            if folder := running["checkpoints"].get(str(int(figures["step"]))):
                print(f"checkpoint of step {int(figures['step'])} in {folder}", flush=True)
        of.report(figures)
    if rank == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while Path(options["hold"]).exists():
        time.sleep(1)


def main(logged: str, hold: str) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig  # type: ignore[import-not-found]
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # type: ignore[import-not-found]

    logged_run = json.loads(Path(logged).read_text())
    for name in ("dataset", "documents", "tokens", "left_out", "best_trial"):
        print(f"{name}: {logged_run[name]}")
    for trial in logged_run["trials"]:
        print(f"trial {trial['number']}: validation_loss {trial['validation_loss']}, {json.dumps(trial['parameters'])}")
    print("champion:", logged_run["champion"]["name"], json.dumps(logged_run["champion"]["scores"]))
    print("configuration:", json.dumps(logged_run["running"]["parameters"]), flush=True)
    DataParallelTrainer(
        train,
        train_loop_config={"logged": logged, "hold": hold},
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(
            name=logged_run["running"]["name"],
            storage_path=str(Path(hold).parent / "results"),
            failure_config=FailureConfig(max_failures=1),
        ),
    ).fit()


if __name__ == "__main__":
    main(*sys.argv[1:])
