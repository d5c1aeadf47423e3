"""A training whose ranks meet in every step, as those do that sum gradients. Holds as `adds` does."""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

from slipway import script


def main() -> None:
    dist.init_process_group("gloo")
    with script.training() as training:
        parameters = training.parameters
        total = torch.tensor(json.loads(training.restored.files["total.json"]) if training.restored else 0.0)
        for step in training.steps(parameters["steps"]):
            if step == parameters.get("hold_at"):
                say(f"holding at {step}")
                while Path(parameters["hold"]).exists():
                    time.sleep(0.01)
            value = torch.tensor(float(training.rank + 1))
            dist.all_reduce(value)
            total += value / step
            training.report(total.item())
            if training.due(parameters["every"]):
                training.commit({"total.json": json.dumps(total.item()).encode()})
        say(f"rank {training.rank} left at {training.step}")
    dist.destroy_process_group()


def say(line: str) -> None:
    """Print it in one write: the line of another rank may come between the two writes of an unbuffered `print`."""
    print(f"{line}\n", end="", flush=True)


if __name__ == "__main__":
    main()
