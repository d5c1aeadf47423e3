"""What the demo's sweep wins: the training that it leads to beside the same training as its recipe is written.

``python -m benchmarks.sweep_gain [--seeds N ...] [--recipe NAME]``: for each seed one JSON line, with the bits per byte
that the last checkpoint of either training reaches on the whole validation split. The seed is that of the sweep and of
the training's run. Recipes, trials, jobs and evaluations are those of `slipway demo`; no daemon, MLflow or UI runs, and
all seeds share one data set, in a fresh home that is removed afterwards. A quiet machine of two cores takes 4 minutes
a seed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps as lane
from slipway.assets.measurement import Measuring
from slipway.assets.promotion.evaluation import evaluate
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.controller import Controller
from slipway.assets.sweeps.full_scale import led_to
from slipway.assets.training import run_policy, specification
from slipway.definitions import build
from slipway.recipes.load import Recipes, load, recipes_folder
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.home import Home
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import all_trainings

BY = "benchmark"
AIM = 0.0
"""Bits per byte by which the training with the sweep's parameters is lower, at the least."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep_gain", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--recipe", default="tiny-decoder", help="a sweep")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slipway-gain-") as folder:
        bench = GainBench(Home(Path(folder)), options.recipe)
        gains = [bench.gain(seed) for seed in options.seeds]
    won = sum(gain > AIM for gain in gains)
    show(f"the sweep's parameters win, of {len(gains)}", "seeds", won, {}, float(len(gains)), "higher")


class GainBench:
    """One home with the data set of a sweep's training."""

    def __init__(self, home: Home, name: str) -> None:
        self.home, self.name = home, name
        configured = embedded_resources(home)
        tiers, compute, tracking = configured["tiers"], configured["compute"], configured["tracking"]
        assert isinstance(tiers, Tiers) and isinstance(compute, EmbeddedCompute) and isinstance(tracking, Tracking)
        self.tiers, self.compute, self.tracking = tiers, compute, tracking
        recipes = self.recipes(0)
        build(recipes, configured)  # says now what is wrong with the recipes
        dataset = recipes.datasets[recipes.trainings[recipes.sweeps[name].training].datasets[0]]
        source = lane.make_documents(dataset, home.durable).inputs["source"]["digest"]
        lane.make_tokenizer(dataset, home.durable)
        pointer.point(home.durable, dataset.name, lane.make_snapshot(dataset, home.durable).result["sha256"], source)

    def recipes(self, seed: int) -> Recipes:
        """The recipes in use, with this seed of the sweep and of its training."""
        folder = recipes_folder()
        training = load(folder, dict(os.environ)).sweeps[self.name].training
        own = {f"SLIPWAY_SWEEPS__{variable(self.name)}__SEED": str(seed)}
        own |= {f"SLIPWAY_TRAININGS__{variable(training)}__RUN__SEED": str(seed)}
        return load(folder, {**os.environ, **own})

    def gain(self, seed: int) -> float:
        """Run the sweep and both trainings; print and return by how much the sweep's one is better."""
        recipes = self.recipes(seed)
        sweep, training = recipes.sweeps[self.name], recipes.trainings[recipes.sweeps[self.name].training]
        subject = current_subject(sweep, training, self.tiers, self.tracking)
        store, began = open_sweep(subject, self.tiers), time.monotonic()
        ended = Controller(store, subject, self.compute.control(self.tiers), self.compute.poll_seconds).run(
            lambda sweep: None
        )
        say(f"seed {seed}: the sweep took {time.monotonic() - began:.0f} s")
        led = led_to(subject, ended)
        assert led is not None, ended.closed
        say(f"seed {seed}: {led.why}; {dict(led.origin)}")
        plain = self.trained(subject.training, subject.snapshot)
        loss = self.trained(led.recipe, subject.snapshot, led.cause)
        show(f"bits per byte, seed {seed}", "bits/byte", loss, {"the recipe as it is written": plain}, None, "lower")
        return plain - loss

    def trained(self, recipe: ModelRecipe, snapshot: str, cause: str = "") -> float:
        """The bits per byte of the last checkpoint of a training of this recipe, which is run if it has not been."""
        root, control = all_trainings(self.tiers), self.compute.control(self.tiers)
        store = root.propose(specification(recipe, snapshot, self.tiers, cause), run_policy(recipe), by=BY)
        root.start(store, BY, "a benchmark")
        began = time.monotonic()
        while (action := control.advance(store, BY)) is not Action.DONE:
            if action is Action.WAIT:
                time.sleep(self.compute.poll_seconds)
        facts = store.read()
        assert facts.succeeded, facts.ended
        last = max(facts.commits, key=lambda commit: commit.step)
        [score] = evaluate(facts, [last], Measuring(self.tiers, self.compute))
        assert score.bits_per_byte is not None
        say(
            f"{store.id}: {score.bits_per_byte:.4f} bits per byte at step {last.step}, {time.monotonic() - began:.0f} s"
        )
        return float(score.bits_per_byte)


def variable(name: str) -> str:
    """A recipe's name as environment variables have it."""
    return name.upper().replace("-", "_")


def say(what: str) -> None:
    """How far it is, for a person."""
    print(what, file=sys.stderr, flush=True)


def show(metric: str, unit: str, value: float, peers: dict[str, float], aim: float | None, better: str) -> None:
    line = {"benchmark": "sweep_gain", "metric": metric, "unit": unit, "better": better, "ours": round(value, 4)}
    print(
        json.dumps({**line, "peers": {name: round(number, 4) for name, number in peers.items()}, "aim": aim}),
        flush=True,
    )


if __name__ == "__main__":
    main()
