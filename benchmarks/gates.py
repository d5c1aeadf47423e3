"""The gate: how often it promotes a model that is worse, and how long the registration of a checkpoint takes.

    python -m benchmarks.gates [--pairs 1000] [--examples 100 300 1000] [--shapes skewed "very skewed"]

Pairs of models are simulated on the same examples: the sizes of texts are skewed (lognormal), losses vary from text to
text (gamma) and the two models differ on each text by noise around a true difference (gamma; very skewed: lognormal).
A model that is worse by exactly the margin must pass in 2.5 % of the pairs at most; one that is better by the margin
must be refused in 2.5 % at most, where there are examples enough. The registration is timed with a checkpoint of one
rank and with one whose manifest has the files of 1,024 ranks. One JSON line a metric.
"""

import argparse
import itertools
import json
import math
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import dagster as dg
import numpy as np

from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.assets.models import lineage
from slipway.assets.promotion import comparison as paired
from slipway.assets.promotion import policy_checks
from slipway.assets.promotion.policy_checks import Rivals
from slipway.recipes.gate import GateSection
from slipway.resources.mlflow.registry import Registry
from slipway.resources.promotions import model_record
from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk.manifest import LAYOUT, MANIFEST, CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.disk.progress import PROGRESS, TrainingProgress
from slipway.trainer.data import snapshots
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record.fence import Commit, Token
from slipway.trainer.record.scores import Score
from tests.assets.datasets.corpora import make_corpus
from tests.sensors.platform import Platform, write_recipes

POLICY = GateSection(margin=0.02)
EXAMPLES = (100, 300, 1000)
"""Examples of a suite."""
NOISE = 0.08
"""Standard deviation, from text to text, of the difference of two models, in bits per byte."""
SIGMAS = {"skewed": 0.8, "very skewed": 1.2}
"""By the shape of the texts, the spread of the logarithms of their sizes."""
ENOUGH = 1000
"""Examples from which on a model that is better by the margin should be refused seldom too."""
RANKS = (1, 64, 1024)


def pair(seed: int, examples: int, worse: float, shape: str = "skewed") -> Rivals:
    """Two models whose true difference on each byte is `worse`."""
    draw = np.random.default_rng(seed)
    sizes = draw.lognormal(7.5, SIGMAS[shape], examples).round()
    champion = sizes * draw.gamma(20.0, 0.05, examples)
    if shape == "skewed":
        noise = NOISE * (draw.gamma(4.0, 0.5, examples) - 2.0)
    else:
        square = math.exp(SIGMAS["skewed"] ** 2)
        spread = math.sqrt((square - 1) * square)
        noise = NOISE * (draw.lognormal(0.0, SIGMAS["skewed"], examples) - math.sqrt(square)) / spread
    return Rivals(champion + sizes * (worse + noise), champion, sizes, {})


def decisions(pairs: int, sizes: Sequence[int], shapes: Sequence[str]) -> Iterator[tuple[str, str, float, str]]:
    """(metric, unit, value, aim)."""
    for shape, examples in itertools.product(shapes, sizes):
        alone = promoted = refused = 0
        for seed in range(pairs):
            difference = policy_checks.difference(pair(seed, examples, POLICY.margin, shape), POLICY, seed)
            alone += difference.high < POLICY.margin
            promoted += policy_checks.against_champion(difference, POLICY).passed
            better = pair(10_000_000 + seed, examples, -POLICY.margin, shape)
            refused += not policy_checks.against_champion(policy_checks.difference(better, POLICY, seed), POLICY).passed
        of, aim = f"{examples} examples, {shape}", "at most 0.025"
        yield f"false promotions, {of}", "share", promoted / pairs, aim
        yield f"false promotions by the interval alone, {of}", "share", alone / pairs, aim
        yield (
            f"false refusals of a better model, {of}",
            "share",
            refused / pairs,
            aim if examples >= ENOUGH else "small",
        )


def comparison() -> float:
    """CPU-seconds of one comparison of 2,000 examples."""
    rivals, begun = pair(1, 2000, 0.0), time.process_time()
    paired.compare(rivals.candidate, rivals.champion, rivals.sizes, 1)
    return time.process_time() - begun


def registrations() -> Iterator[tuple[str, str, float, str]]:
    """The time of the record and the registration of a checkpoint of so many ranks, as `candidate` makes them."""
    with tempfile.TemporaryDirectory(prefix="slipway-gates-") as folder:
        root = Path(folder)
        (root / "dagster").mkdir()
        with dg.instance_for_test(temp_dir=str(root / "dagster")) as instance:
            platform, snapshot = _furnished(root, instance)
            registry = Registry(platform.tracking, platform.home.durable)  # makes MLflow's database
            for ranks in (RANKS[0], *RANKS):  # the first one imports MLflow
                seconds, size = _register(platform, registry, snapshot, ranks)
                yield f"registration, {ranks} ranks, {size / 1e9:.1f} GB", "s", seconds, "below 1"


def _furnished(root: Path, instance: dg.DagsterInstance) -> tuple[Platform, Snapshot]:
    """A home with a snapshot."""
    make_corpus(root / "corpus")
    write_recipes(root / "recipes")
    platform = Platform(root, instance)
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    snapshot = steps.make_snapshot(dataset, durable).result["sha256"]
    pointer.point(durable, dataset.name, snapshot, source)
    return platform, snapshots.read(durable, snapshot)


def _register(platform: Platform, registry: Registry, snapshot: Snapshot, ranks: int) -> tuple[float, int]:
    """Seconds, and the bytes that the manifest tells; the files themselves are never opened."""
    store, durable = platform.start_training(f"{ranks} ranks {time.time_ns()}"), platform.home.durable
    assert store.claim(1, ("node-0",), "first start", "benchmark")
    folder = durable / "checkpoints" / store.id / "5"
    folder.mkdir(parents=True)
    config = {"model": {}, "batch": {"length": 16}, "run": {"seed": 0}}
    progress = TrainingProgress(5, 5, 0, {"loss": 1.0}, {}, config, {"revision": "a" * 40}, time.time()).encode()
    (folder / PROGRESS).write_bytes(progress)
    names = [f"{group}-{rank:05d}.safetensors" for rank in range(ranks) for group in ("model", "optimizer")]
    described = {name: CheckpointFile(1_600_000_000, digest.of_bytes(name.encode())) for name in names}
    described[PROGRESS] = CheckpointFile(len(progress), digest.of_bytes(progress))
    manifest = CheckpointManifest(LAYOUT, described)
    (folder / MANIFEST).write_bytes(manifest.encode())
    commit = Commit(5, Token(1), f"checkpoints/{store.id}/5", digest.sha256(manifest.encode()))
    score, facts = Score(commit.name, 1.0, 2.7, 1.0, 0.5, 100), store.read()
    begun = time.perf_counter()
    record = model_record.of_checkpoint("benchmark", facts, commit, score, snapshot, durable)
    model_record.keep(durable, record)
    registry.register("benchmark", folder, "", lineage(facts, commit, score, "benchmark"))
    return time.perf_counter() - begun, manifest.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--examples", type=int, nargs="+", default=EXAMPLES)
    parser.add_argument("--shapes", nargs="+", choices=tuple(SIGMAS), default=tuple(SIGMAS))
    parser.add_argument("--without", choices=("decisions", "registration"), nargs="*", default=[])
    options = parser.parse_args()
    for metric, unit, value, aim in _decisions(options):
        _print(metric, unit, value, aim)
    _print("one comparison of 2,000 examples", "CPU-s", comparison(), "below 1")
    for metric, unit, value, aim in () if "registration" in options.without else registrations():
        _print(metric, unit, value, aim)


def _decisions(options: argparse.Namespace) -> Iterable[tuple[str, str, float, str]]:
    return () if "decisions" in options.without else decisions(options.pairs, options.examples, options.shapes)


def _print(metric: str, unit: str, value: float, aim: str) -> None:
    line = {"benchmark": "gates", "metric": metric, "unit": unit, "better": "lower", "ours": value, "peers": {}}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
