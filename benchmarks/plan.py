"""The plan: predicted against measured peaks of small layouts, and its seconds at 256 and 2,048 ranks.

``python -m benchmarks.plan [--layouts NAME ...]`` prints one JSON line a metric. The layouts and the real ranks are
those of the tests (`tests/trainer/plan/layouts.py`).
"""

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.parts.lines import print_line
from slipway import recipes
from slipway.recipes.load import load
from slipway.recipes.plan import planned
from slipway.trainer.plan import plan_client
from tests.trainer.plan.layouts import LAYOUTS, measured_peaks

EXAMPLES = Path(recipes.__file__).parent / "examples"
SIZES = {256: 30.0, 2048: 60.0}
"""The aim in seconds by the number of ranks."""


def main() -> None:
    """Print the metrics."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--layouts", nargs="*", default=list(LAYOUTS))
    for line in itertools.chain(seconds(), ratios(arguments.parse_args().layouts)):
        print_line({"benchmark": "plan", **line})


def seconds() -> Iterator[dict[str, object]]:
    """The seconds of a plan of the largest example, with the start of its process, as a launch waits for it."""
    question = planned(load(EXAMPLES, {}), "llama-405b").question
    for ranks, aim in SIZES.items():
        begun = time.perf_counter()
        plan_client.ask(replace(question, nodes=ranks // 8, ranks_per_node=8, kernels="cuda"))
        took = round(time.perf_counter() - begun, 1)
        yield _line(f"405B over {ranks} ranks", "s", "lower", took, {}, aim)


def ratios(names: list[str]) -> Iterator[dict[str, object]]:
    """The planned peak as a share of the measured one, of the rank that has the most."""
    for name in names:
        measured = measured_peaks(LAYOUTS[name])[-1]
        expected = max(stage.peak for stage in plan_client.ask(LAYOUTS[name]))
        yield _line(
            f"peak, {name}", "share of measured", "1", round(expected / measured, 3), {"measured": measured}, 1.0
        )


def _line(metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float) -> dict[str, object]:
    return {"metric": metric, "unit": unit, "better": better, "ours": value, "peers": peers, "aim": aim}


if __name__ == "__main__":
    main()
