"""A training without any framework: a number that each step adds to. Its parameters are the faults to inject.

`hold_at`: the step in which it says so and waits until the file `hold` is gone; `diverges_at`, `silent_at`,
`raises_at`, `leaves_at`: the step whose loss is infinite, that is not reported, that raises, after which it leaves.
"""

import json
import time
from pathlib import Path

from slipway import script


def main() -> None:
    with script.training() as training:
        parameters = training.parameters
        print(f"shards {' '.join(map(str, training.shards('train')))}", flush=True)
        total = json.loads(training.restored.files["total.json"]) if training.restored else 0.0
        for step in training.steps(parameters["steps"]):
            total += 1 / (step + total)
            if step == parameters.get("hold_at"):
                print(f"holding at {step}", flush=True)
                while Path(parameters["hold"]).exists():
                    time.sleep(0.01)
            if step == parameters.get("raises_at"):
                raise RuntimeError("the script's own mistake\nin two lines")
            if step != parameters.get("silent_at"):
                training.report(float("inf") if step == parameters.get("diverges_at") else 1 / total, total=total)
            if step == parameters.get("leaves_at"):
                break
            if training.due(parameters["every"]):
                training.commit(
                    {parameters.get("file", "total.json"): json.dumps(total).encode()}, validation_loss=1 / total
                )


if __name__ == "__main__":
    main()
