"""Code of Dagster alone, as an ordinary person writes it around a trainer: nothing of Slipway is imported.

It logs what the file of LOGGED has (`benchmarks.peers.logged`): assets with metadata, checks, an observation and a
line for each step of the training that runs, a retry where its rank was killed. HOLD is a file: while it is there, the
training runs on.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

LOGGED = json.loads(Path(os.environ["LOGGED"]).read_text())
HOLD = Path(os.environ["HOLD"])
RUNNING, CHAMPION = LOGGED["running"], LOGGED["champion"]


def table(head: list[str], rows: list[list[Any]]) -> dg.MarkdownMetadataValue:
    lines = [head, ["---"] * len(head), *rows]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(map(str, line))} |" for line in lines))


@dg.asset(check_specs=[dg.AssetCheckSpec("no_empty_split", asset="dataset")])
def dataset() -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    left_out = table(["left out because", "documents"], [[*row] for row in LOGGED["left_out"].items()])
    counts = {"dagster/row_count": LOGGED["documents"], "tokens": LOGGED["tokens"]}
    yield dg.MaterializeResult(metadata={"name": LOGGED["dataset"], **counts, "left_out": left_out})
    yield dg.AssetCheckResult(passed=True, check_name="no_empty_split")


@dg.asset(deps=[dataset])
def sweep() -> dg.MaterializeResult[Any]:
    trials = LOGGED["trials"]
    rows = [[f"trial {trial['number']}", trial["validation_loss"], json.dumps(trial["parameters"])] for trial in trials]
    best = {"best_trial": LOGGED["best_trial"], "trials": table(["trial", "validation_loss", "parameters"], rows)}
    return dg.MaterializeResult(metadata=best)


@dg.asset(deps=[sweep], check_specs=[dg.AssetCheckSpec("beats_champion", asset="champion")])
def champion() -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    yield dg.MaterializeResult(
        metadata={"training": CHAMPION["name"], "configuration": CHAMPION["parameters"], **CHAMPION["scores"]}
    )
    yield dg.AssetCheckResult(passed=True, check_name="beats_champion")


@dg.asset(deps=[dataset], retry_policy=dg.RetryPolicy(max_retries=1))
def training(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
    context.log.info(f"configuration: {json.dumps(RUNNING['parameters'])}; on {', '.join(RUNNING['nodes'])}")
    steps = RUNNING["steps"]
    half = len(steps) // 2
    for figures in steps[:half] if context.retry_number == 0 else steps[half:]:
        _log(context, figures)
    if context.retry_number == 0:
        raise RuntimeError(LOGGED["fault"])
    while HOLD.exists():
        time.sleep(1)
    return dg.MaterializeResult(metadata={"loss": steps[-1]["loss"]})


def _log(context: dg.AssetExecutionContext, metrics: Mapping[str, float]) -> None:
    step = int(metrics["step"])
    figures = ", ".join(f"{name} {value:.5g}" for name, value in metrics.items() if name != "step")
    context.log.info(f"step {step} of {RUNNING['total']}: {figures}")
    context.log_event(dg.AssetObservation("training", metadata=dict(metrics)))
    if folder := RUNNING["checkpoints"].get(str(step)):
        context.log.info(f"checkpoint of step {step} in {folder}")


defs = dg.Definitions(
    assets=[dataset, sweep, champion, training],
    jobs=[
        dg.define_asset_job("build", [dataset, sweep, champion], executor_def=dg.in_process_executor),
        dg.define_asset_job("train", [training], executor_def=dg.in_process_executor),
    ],
)
