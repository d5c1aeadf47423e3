"""Evaluation: each checkpoint on the whole validation split, in a process that imports nothing of Dagster."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dagster as dg

from assets import keys, plots, pods
from recipes.schema import Training
from resources.compute import CODE, trainings
from resources.tiers import Tiers
from resources.training_store import TrainingStore
from trainer import atomic, fence
from trainer.checkpoint.interval import DURABLE
from trainer.scores import FORMAT, Score

SPLIT = "validation"


def evaluation_assets(recipe: Training) -> list[dg.AssetsDefinition]:
    """The evaluations of one lane, a partition for each checkpoint; those that wait share one process."""

    @dg.asset(
        key=keys.key(recipe.name, "evaluation"),
        deps=[keys.key(recipe.name, "checkpoint")],
        partitions_def=keys.checkpoint_partitions(recipe.name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=keys.lane(recipe.name),
        kinds={"torch"},
        op_tags=pods.tags("evaluation"),
        owners=[recipe.owner],
        description=(
            "Loss, perplexity, accuracy and, where a text is coded, bits per byte of a checkpoint on the whole "
            "validation split. "
            "The checkpoint is verified before it is read; a damaged one is set aside with the reason."
        ),
    )
    def evaluation(context: dg.AssetExecutionContext, tiers: Tiers) -> dg.MaterializeResult[None]:
        damaged = []
        for training, steps in _by_training(context.partition_keys).items():
            store = trainings(tiers).store(training)
            commits = [commit for commit in store.commits(DURABLE) if commit.step in steps]
            scores = {score.checkpoint: score for score in evaluate(store, commits, tiers)}
            for commit in commits:
                score = scores[commit.name]
                if score.damaged:
                    store.set_aside(commit, score.damaged)
                    damaged.append(f"step {commit.step}: {score.damaged}")
                    continue
                context.add_asset_metadata(
                    _metadata(store, commit, score), partition_key=keys.checkpoint_partition(training, commit.step)
                )
        if damaged:
            raise dg.Failure(f"damaged checkpoints were set aside: {'; '.join(damaged)}")
        return dg.MaterializeResult()

    return [evaluation]


def evaluate(store: TrainingStore, commits: list[fence.Commit], tiers: Tiers) -> list[Score]:
    """Evaluate commits of one training on its own snapshot; what is known already is not done again."""
    waiting = [commit for commit in commits if score_of(store, commit) is None]
    if waiting:
        measured = measure(store.specification().snapshot, waiting, tiers)
        for score in measured:
            if not score.damaged:
                atomic.replace(_path(store, score.checkpoint), atomic.readable_json(vars(score)))
        damaged = [score for score in measured if score.damaged]
    else:
        damaged = []
    return [known for commit in commits if (known := score_of(store, commit)) is not None] + damaged


def measure(snapshot: str, commits: list[fence.Commit], tiers: Tiers, root: Path | None = None) -> list[Score]:
    """Run the evaluator over commits, in one process; their folders lie in `root`, by default the durable tier.

    Raises dg.Failure with the end of what it printed.
    """
    entries = [{"name": c.name, "folder": c.folder, "manifest": c.manifest} for c in commits]
    document = {
        "tier": str(tiers.durable_path),
        "durable": str(root or tiers.durable_path),
        "snapshot": snapshot,
        "split": SPLIT,
        "checkpoints": entries,
    }
    with tempfile.TemporaryDirectory(prefix="evaluation-") as folder:
        request, output = Path(folder, "request.json"), Path(folder, "scores.json")
        request.write_bytes(atomic.readable_json({**document, "output": str(output)}))
        command = [sys.executable, "-m", "trainer.evaluate", str(request)]
        done = subprocess.run(command, cwd=CODE, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise dg.Failure(f"the evaluator ended with exit code {done.returncode}: {done.stderr[-2000:]}")
        answer = json.loads(output.read_bytes())
    assert answer["format"] == FORMAT
    return [Score(**score) for score in answer["scores"]]


def evaluated(store: TrainingStore) -> list[tuple[fence.Commit, Score]]:
    """The commits on the durable tier that have been evaluated, by step, with their scores."""
    return [(commit, known) for commit in store.commits(DURABLE) if (known := score_of(store, commit)) is not None]


def score_of(store: TrainingStore, commit: fence.Commit) -> Score | None:
    """What the evaluation of a commit measured, None before it was done."""
    path = _path(store, commit.name)
    return Score(**json.loads(path.read_bytes())) if path.exists() else None


def _path(store: TrainingStore, checkpoint: str) -> Path:
    return store.folder / "evaluations" / f"{checkpoint}.json"


def _metadata(store: TrainingStore, commit: fence.Commit, score: Score) -> dict[str, dg.MetadataValue]:
    curve = [(each.step, known.loss) for each, known in evaluated(store)]
    return {
        "step": dg.MetadataValue.int(commit.step),
        "loss": dg.MetadataValue.float(score.loss),
        "perplexity": dg.MetadataValue.float(score.perplexity),
        **({"bits_per_byte": dg.MetadataValue.float(score.bits_per_byte)} if score.bits_per_byte else {}),
        "accuracy": dg.MetadataValue.float(score.accuracy),
        "predicted": dg.MetadataValue.int(score.tokens),
        "manifest": dg.MetadataValue.text(commit.manifest),
        "loss_curve": plots.curve({"validation loss": curve}, "step", "nats per prediction"),
    }


def _by_training(partitions: list[str] | tuple[str, ...]) -> dict[str, set[int]]:
    grouped: dict[str, set[int]] = {}
    for partition in partitions:
        training, step = keys.parse_checkpoint_partition(partition)
        grouped.setdefault(training, set()).add(step)
    return grouped
