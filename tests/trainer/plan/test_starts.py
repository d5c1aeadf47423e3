"""The start that a plan describes is the start that happens, rank by rank: parts, bytes and what is drawn."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway import recipes
from slipway.recipes.load import load
from slipway.recipes.plan import planned
from slipway.trainer.plan import question as questions
from slipway.trainer.plan import stages
from slipway.trainer.plan.question import Question
from tests.trainer.plan.layouts import CODE, question

RANKS = 4
LAYOUTS = {
    "llama-70b": question(ranks=RANKS, precision="bf16", tensor=2, shard="full", activations="recompute"),
    "interleaved": question(
        ranks=RANKS, shard="full", pipeline=2, schedule="interleaved", stages_per_rank=2, batch=(16, 2)
    ),
    "hybrid": question(ranks=RANKS, shard="hybrid", shard_ranks=2),
}


def started(layout_question: Question) -> list[dict[str, Any]]:
    """What each rank of a real start held, by torchrun."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
    module = [f"--nproc-per-node={layout_question.ranks}", "-m", "tests.trainer.plan.started_process"]
    done = subprocess.run(
        [*launch, *module, json.dumps(questions.document(layout_question))],
        cwd=CODE,
        env={**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    ranks = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(ranks) == layout_question.ranks, done.stderr
    return sorted(ranks, key=lambda rank: int(rank["rank"]))


def described(layout_question: Question, rank: int, counts: bool = True) -> dict[str, Any]:
    """What the plan says of one rank."""
    command = [
        sys.executable,
        "-m",
        "tests.trainer.plan.described_process",
        json.dumps(questions.document(layout_question)),
    ]
    done = subprocess.run(
        [*command, str(rank), "counts" if counts else "begins"],
        cwd=CODE,
        env={**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    description: dict[str, Any] = json.loads(done.stdout)
    return description


@pytest.mark.nightly
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_rank_holds_the_parts_and_the_bytes_that_the_plan_gives_it(name: str) -> None:
    """At its beginning, tensor by tensor; and after its first step in weights, gradients and optimiser state."""
    plan_question = LAYOUTS[name]
    ranks = started(plan_question)
    for rank in (RANKS - 1,) if name == "llama-70b" else range(RANKS):
        real, plan = ranks[rank], described(plan_question, rank)
        drawn = real["begun"].pop("drawn")
        assert real["begun"] == plan["begun"]
        assert drawn == plan["begun"]["to_draw"] > 0
        for purpose in ("weights", "gradients", "optimizer"):
            assert real["after"][purpose] == plan["after"][purpose] > 0, (rank, purpose)


@pytest.mark.nightly
@pytest.mark.parametrize("rank", [0, 9, 63])
def test_the_plan_of_llama_70b_counts_what_its_ranks_begin_with(rank: int) -> None:
    """Of 64 GPUs, at full depth. The plan itself ran three and five of the 80 blocks, on rank 0 alone."""
    plan_question = planned(load(Path(recipes.__file__).parent / "examples", {}), "llama-70b", "h200-32").question
    [counted] = stages.measure(plan_question)
    begun = described(plan_question, rank, counts=False)["begun"]
    assert begun["weights"] == counted.parts["weights"]
    assert begun["to_draw"] * 4 <= counted.trained == counted.peaks["update"]["gradients"]
    share, columns = divmod(rank, 8)
    # 8 GPUs of a node divide the matrix by rows of queries, and 8 nodes divide each of these parts again.
    assert begun["parts"]["blocks.79.attention.query.weight"] == [[1024 * columns + 128 * share, 0], [128, 8192]]
    assert counted.parameters == 70_553_706_496 and counted.checkpoint == 12 * counted.parameters
