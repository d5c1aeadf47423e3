"""Ray Tune's gap between two trials that run one after the other: from one's end to the next one's beginning.

``python benchmarks/peers/trial_gap.py TRIALS`` prints a JSON object: the median in seconds of a function trainable,
which has a new process for each trial, and of a class trainable with `reuse_actors`. The trials do nothing and import
nothing, so that this is the least that Ray takes. Nothing of Slipway is imported, so that it runs in an environment of
Ray's own.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PATIENCE = {
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_worker_register_timeout_seconds": "300",
}
"""A busy machine takes longer to start Ray than Ray waits."""


def note(log: str) -> None:
    """Append the moment to a log."""
    with open(log, "a") as file:
        file.write(f"{time.time()}\n")


def gap(trainable: Any, trials: int, folder: Path, reuse: bool) -> float:
    """The median of the gaps, in seconds, of so many trials on one slot; each notes when it begins and when it ends."""
    from ray import tune  # type: ignore[import-not-found]

    log = folder / "log"
    log.unlink(missing_ok=True)
    one_slot = tune.TuneConfig(num_samples=trials, max_concurrent_trials=1, reuse_actors=reuse)
    run_config = tune.RunConfig(storage_path=str(folder / "results"), verbose=0)
    tune.Tuner(trainable, param_space={"log": str(log)}, tune_config=one_slot, run_config=run_config).fit()
    moments = [float(line) for line in log.read_text().split()]
    return statistics.median(begun - ended for ended, begun in zip(moments[1::2], moments[2::2], strict=False))


def main(trials: int) -> None:
    os.environ.update(PATIENCE)
    import ray
    from ray import tune

    class Trial(tune.Trainable):  # type: ignore[misc]
        def setup(self, config: dict[str, Any]) -> None:
            self.log = config["log"]

        def reset_config(self, config: dict[str, Any]) -> bool:
            return True

        def step(self) -> dict[str, Any]:
            note(self.log)
            note(self.log)
            return {"loss": 1.0, "done": True}

        def save_checkpoint(self, folder: str) -> None: ...

        def load_checkpoint(self, folder: str) -> None: ...

    def function(config: dict[str, Any]) -> dict[str, float]:
        note(config["log"])
        note(config["log"])
        return {"loss": 1.0}

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
        gaps = {
            "ray, reuse_actors": gap(Trial, trials, Path(folder), reuse=True),
            "ray, function": gap(function, trials, Path(folder), reuse=False),
        }
        ray.shutdown()
    print(json.dumps(gaps))


if __name__ == "__main__":
    main(int(sys.argv[1]))
