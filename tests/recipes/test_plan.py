"""`slipway plan`: the recipe's own code at its own number of ranks, asked in a process without torch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway import recipes
from slipway.recipes import assignments
from slipway.recipes.load import load
from slipway.recipes.plan import grace_warning, planned, planned_shards
from slipway.recipes.problems import InvalidRecipes
from slipway.trainer.plan.shards import judge_shards, report_shards, room_of
from tests.assets.datasets.snapshots import make_snapshot
from tests.trainer import noise

FOLDER = Path(recipes.__file__).parent
CODE = FOLDER.parent


def command(home: Path, *arguments: str, folder: Path = FOLDER) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "SLIPWAY_RECIPES": str(folder), "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(CODE)}
    launch = [sys.executable, "-m", "slipway.cli", "plan", *arguments]
    return subprocess.run(launch, cwd=CODE, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_says_what_a_training_needs_and_keeps_the_measure(tmp_path: Path):
    done = command(tmp_path, "tiny-decoder", "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed["fits"] and printed["parameters"] == 1_836_160
    assert printed["checkpoint"]["size"] == 12 * 1_836_160
    assert printed["staging"]["least"] > 0 and not printed["staging"]["problem"]
    plans = list((tmp_path / "slipway" / "plans").iterdir())
    before = plans[0].stat().st_mtime_ns
    assert json.loads(command(tmp_path, "tiny-decoder", "--json").stdout) == printed
    assert [plan.stat().st_mtime_ns for plan in plans] == [before] and len(plans) == 1


@pytest.mark.nightly
def test_what_does_not_fit_is_refused_with_what_to_change(tmp_path: Path):
    """A micro-batch of a whole batch of long sequences, on one GPU of 140 GiB."""
    fields = ("batch.micro=64", "batch.sequences=1024", "placement.ranks_per_node=1")
    done = command(tmp_path, "llama-1b", *fields, "--on", "h200-32", folder=FOLDER / "examples")
    assert done.returncode == 1, done.stderr
    assert "does not fit on h200-32" in done.stdout and "batch.micro=1 it fits" in done.stdout


def test_gpus_given_as_nodes_are_refused_with_the_number_of_nodes(tmp_path: Path):
    fields = ("placement.nodes.min=256", "placement.nodes.max=256", "batch.sequences=4096")
    done = command(tmp_path, "llama-405b", *fields, "--on", "h200-32", folder=FOLDER / "examples")
    assert done.returncode == 1
    assert "llama-405b: placement.nodes: found 256, expected 32 at most" in done.stderr
    assert "256 GPUs are 32 nodes" in done.stderr


@pytest.mark.parametrize(
    ("layout", "fits"), [(("layout.shard=none", "layout.tensor=1", "batch.sequences=64"), False), ((), True)]
)
def test_a_recipe_that_names_gpus_is_refused_when_its_state_alone_is_above_their_memory(
    layout: tuple[str, ...], fits: bool
):
    fields = ("hardware.profile=h200-infiniband", *layout)
    if fits:
        assert assignments.load_with(FOLDER / "examples", "trainings", "llama-70b", fields)
        return
    with pytest.raises(InvalidRecipes) as caught:
        assignments.load_with(FOLDER / "examples", "trainings", "llama-70b", fields)
    assert "layout: found a model that takes 1,056.3 GiB or more of each of 64 GPUs" in str(caught.value)
    assert "expected 140.0 GiB at most, as h200-32 has" in str(caught.value)


@pytest.mark.parametrize(("gigabytes", "kind"), [(500, "whole"), (2000, "parts"), (9000, "window")])
def test_a_dataset_larger_than_a_node_is_held_in_parts_or_a_window(gigabytes: float, kind: str):
    """2 TB on nodes of 1 TB; the size stands for a snapshot that is not there yet."""
    shards = planned_shards(load(FOLDER / "examples", {}), "llama-70b", None, gigabytes)
    room = room_of(10**12, 680 * 10**9, None)
    verdict = judge_shards("auto", shards.need, shards.known, room, nodes=8)
    assert (verdict.kind, verdict.problem) == (kind, "")
    assert room is not None and verdict.nvme_needed is not None and verdict.least <= verdict.nvme_needed <= room


def test_before_the_first_snapshot_the_largest_sizes_are_said():
    shards = planned_shards(load(FOLDER / "examples", {}), "llama-70b", None, None)
    verdict = judge_shards("auto", shards.need, shards.known, 680 * 10**9, nodes=8)
    assert (verdict.kind, verdict.snapshot, verdict.whole_up_to) == ("", None, 680 * 10**9)
    report = "\n".join(report_shards(verdict, 8))
    assert "the dataset has no snapshot yet" in report and "whole    up to 680.0 GB" in report


def test_a_plan_of_a_snapshot_reads_its_manifest_alone(tmp_path: Path):
    snapshot = make_snapshot(tmp_path, tokens=100_000)
    shards = planned_shards(load(FOLDER, {}), "tiny-decoder", snapshot, None)
    assert shards.known and shards.need.total == sum(shard.bytes for shard in snapshot.shards())
    verdict = judge_shards("auto", shards.need, True, shards.need.largest - 1, nodes=1)
    assert verdict.problem.startswith("placement.staging: found auto with") and not verdict.kind
    assert next(report_shards(verdict, 1)).startswith("The nodes cannot hold the snapshot: placement.staging")


def test_a_plan_counts_the_classes_of_the_snapshot_and_without_one_a_thousand(tmp_path: Path):
    snapshot = noise.maker(1)(tmp_path)
    known = load(FOLDER / "examples", {})
    assert planned(known, "resnet-50", "h200-32").question.data.classes == 1000
    assert planned(known, "resnet-50", "h200-32", snapshot).question.data.classes == 10


def test_a_plan_on_a_snapshot_that_the_model_cannot_read_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^model\.kind: found 'decoder', expected a model that reads pictures"):
        planned(load(FOLDER, {}), "tiny-decoder", None, noise.maker(1)(tmp_path))


def test_an_unknown_recipe_is_refused_with_a_list_of_all_recipes():
    with pytest.raises(ValueError, match=r"^found 'none', expected a training recipe: tiny-decoder$"):
        planned(load(FOLDER, {}), "none")


def test_a_script_is_refused_as_one():
    with pytest.raises(ValueError, match=r"^training recipe bigram is a script"):
        planned(load(FOLDER, {}), "bigram")


def test_a_recipe_is_planned_without_torch():
    """The control plane asks: it must not pay for torch."""
    code = (
        "import sys; from pathlib import Path; from slipway.recipes.load import load;"
        "from slipway.recipes.plan import planned;"
        "import slipway.trainer.plan.plan_client, slipway.trainer.plan.verdict, slipway.trainer.plan.verdict;"
        "planned(load(Path('recipes/examples'), {}), 'llama-70b', 'h200-32'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CODE, capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == "False", done.stderr


def test_a_grace_that_is_shorter_than_a_save_is_reported_with_the_field():
    fields = ["placement.kubernetes.grace_seconds=60"]
    known = assignments.load_with(FOLDER / "examples", "trainings", "llama-1b", fields).trainings["llama-1b"]
    assert "grace_seconds: found 60, expected more than the 90 s" in grace_warning(known, "h200-32", 90.0)
    assert grace_warning(known, "h200-32", 30.0) == "" == grace_warning(known, "h200-32", None)


def test_without_a_grace_of_its_own_a_training_has_that_of_the_cluster():
    known = load(FOLDER / "examples").trainings["llama-1b"]
    assert "found 300" in grace_warning(known, "h200-32", 301.0)
