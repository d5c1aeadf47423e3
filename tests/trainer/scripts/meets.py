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
        given = training.parameters
        total = torch.tensor(json.loads(training.restored.files["total.json"]) if training.restored else 0.0)
        for step in training.steps(given["steps"]):
            if step == given.get("hold_at"):
                say(f"holding at {step}")
                while Path(given["hold"]).exists():
                    time.sleep(0.01)
            mine = torch.tensor(float(training.rank + 1))
            dist.all_reduce(mine)
            total += mine / step
            training.report(total.item())
            if training.due(given["every"]):
                training.commit({"total.json": json.dumps(total.item()).encode()})
        say(f"rank {training.rank} left at {training.step}")
    dist.destroy_process_group()


def say(line: str) -> None:
    """Print it in one write: the line of another rank may come between the two writes of an unbuffered `print`."""
    print(f"{line}\n", end="", flush=True)


if __name__ == "__main__":
    main()
