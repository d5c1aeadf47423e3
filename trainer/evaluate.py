"""Evaluation in processes of its own: ``python -m slipway.trainer.evaluate REQUEST.json`` measures checkpoints.

One process measures all checkpoints of a request, so it imports torch and opens the split once. Under torchrun, ranks
divide the weights, the batches and the bytes to verify; the result is the same except for rounding. The request names
each checkpoint by its folder and manifest. Each is verified before it is read; the score of a damaged one, and of one
whose loss is not finite, has the reason. The scores are written in one atomic write: to the request's `output`, or as
the `outcome` of a short job (`slipway.trainer.record.job_result`).
"""

import contextlib
import functools
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slipway.trainer.base import codec, console, parsing, regular_file
from slipway.trainer.base.processes import bind_to_launcher
from slipway.trainer.checkpoint.disk import contents as checkpoints
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying
from slipway.trainer.checkpoint.tiers.folder_tier import NodesTier
from slipway.trainer.checkpoint.tiers.tier import TierSource, TierUnavailable
from slipway.trainer.config import evaluating, resolved
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents, images, mixtures, shards, snapshots
from slipway.trainer.data.documents import DocumentedSequences
from slipway.trainer.data.examples import LoneDocuments
from slipway.trainer.data.pictures import Pictures
from slipway.trainer.data.sequences import Sequences
from slipway.trainer.elastic.process_groups import join
from slipway.trainer.models.model import Rows, SampleNumbers
from slipway.trainer.node.world import World
from slipway.trainer.record import job_result, scores
from slipway.trainer.record.scores import FORMAT, Score, Scores, perplexity
from slipway.trainer.step.measuring import Batch, BatchSums, Measurement, finding_no_memory

LINE_SECONDS = 5.0
LONE_ROWS = 8
"""Windows of one document that are measured at once."""
Done = TypeVar("Done")
PREFIX = "evaluate: "
Samples = Sequences | DocumentedSequences | Pictures


def evaluate(request: Mapping[str, Any], world: World | None = None) -> list[Score]:
    """Measure the checkpoints of a request: {tier, snapshot, split, durable, checkpoints: [{name, folder, manifest}]}.

    With `each`, the figures of every example alone are measured instead of the split's
    (`slipway.trainer.record.scores`). It may also have a `config` (`slipway.trainer.config.evaluating`), without which
    one process does it, and a `source`: the tier (or the folders of nodes) that the checkpoints are first copied from,
    to a folder beside the `outcome`. All ranks call at once and get the same.

    Raises ValueError for a checkpoint whose files have another layout, MemoryError, OSError and TierUnavailable.
    """
    if world is None:
        with join() as alone:
            return evaluate(request, alone)
    tier = Path(request["tier"])
    snapshot = snapshots.read(tier, request["snapshot"])
    return [_score(request, entry, snapshot, tier, world) for entry in request["checkpoints"]]


def _score(
    request: Mapping[str, Any], entry: Mapping[str, str], snapshot: snapshots.Snapshot, tier: Path, world: World
) -> Score:
    try:
        with _folder(request, entry, world) as folder:
            checkpoint = _verified(folder, entry["manifest"], world)
            config = _config(request, checkpoint, world)
            arguments = entry["name"], checkpoint, config, tier, snapshot, request["split"], world
            return _measure_each(*arguments, request.get("calibrated")) if request.get("each") else _measure(*arguments)
    except DamagedCheckpoint as damage:
        return _score_with_reason(entry["name"], str(damage))


def _config(request: Mapping[str, Any], checkpoint: Contents, world: World) -> Config:
    """The configuration of the ranks: that of the request, or one for a single process."""
    return requested(request) or evaluating.configuration(checkpoint.progress().config, Evaluation(), world.size)


def requested(request: Mapping[str, Any]) -> Config | None:
    """The configuration of a request for ranks. Raises ValueError with the field at fault."""
    fields = request.get("config")
    return codec.build(Config, {k: v for k, v in fields.items() if k != "format"}, "config") if fields else None


def _loaded(name: str, checkpoint: Contents, config: Config, snapshot: snapshots.Snapshot, world: World) -> Measurement:
    _say(world, f"{name}: loading its weights")
    settings = checkpoint.progress().config
    shape = resolved.shape(settings["model"])
    length = settings["batch"]["length"]
    with finding_no_memory("with the weights alone"):
        measurement = Measurement(config, world, contents.data(snapshot, shape, length, settings["run"]["seed"]))
        targets = {f"model/{part}": tensor for part, tensor in measurement.model.state_dict().items()}
        checkpoint.load(targets, world.rank / world.size)
    return measurement


def _measure(
    name: str,
    checkpoint: Contents,
    config: Config,
    tier: Path,
    snapshot: snapshots.Snapshot,
    split: str,
    world: World,
) -> Score:
    measurement = _loaded(name, checkpoint, config, snapshot, world)
    documents = measurement.model.reads_documents
    samples = _samples(tier, snapshot, split, checkpoint.progress().config["batch"]["length"], documents)
    rows = config.evaluation.batch or measurement.rows_that_fit(functools.partial(_read, samples, 0, 1))
    owners, batches = _by_dataset(snapshot, split, samples, rows, measurement.model.causal)
    sums = measurement.sums(batches, _progress(name, world, samples, rows))
    predicted = sum(batch_sums.predicted for batch_sums in sums)
    mean = _sum(sums) / predicted
    if not math.isfinite(mean):
        return _score_with_reason(name, f"its loss on the {split} split is {mean}")
    bits = _bits_per_byte(mean, snapshot, split) if measurement.model.causal else 0.0
    right = sum(batch_sums.right for batch_sums in sums)
    return Score(
        name, mean, perplexity(mean), bits, right / predicted, predicted, by_dataset=scores.of_datasets(owners, sums)
    )


def _measure_each(
    name: str,
    checkpoint: Contents,
    config: Config,
    tier: Path,
    snapshot: snapshots.Snapshot,
    split: str,
    world: World,
    calibrated: int | None,
) -> Score:
    """The score of a checkpoint by its examples, each measured alone; its calibration, by the first `calibrated`."""
    measurement = _loaded(name, checkpoint, config, snapshot, world)
    owners, batches = _lone_batches(tier, snapshot, split, checkpoint.progress().config["batch"]["length"], measurement)
    begun = time.monotonic()
    sums = measurement.sums(batches, _progress(name, world, owners, 1), confidence=True)
    examples = scores.of_examples(owners, sums, time.monotonic() - begun, calibrated)
    predicted = sum(examples.predicted)
    mean = _sum(sums) / max(1, sum(examples.predicted))
    if not math.isfinite(mean):
        return _score_with_reason(name, f"its loss on the {split} split is {mean}")
    return Score(
        name, mean, perplexity(mean), 0.0, sum(examples.right) / max(1, predicted), predicted, examples=examples
    )


def _lone_batches(
    tier: Path, snapshot: snapshots.Snapshot, split: str, length: int, measurement: Measurement
) -> tuple[list[int], list[Batch]]:
    """The example of each batch, and the batches: a document in parts, or one sample of the split."""
    documents = measurement.model.reads_documents
    if not measurement.model.causal or isinstance(snapshot, images.ImageSnapshot):
        samples = _samples(tier, snapshot, split, length, documents)
        return list(range(len(samples))), _batches(samples, 1, False, range(len(samples.shards)))
    assert isinstance(snapshot, shards.TextSnapshot)
    lone = LoneDocuments(tier, snapshot, split, length, LONE_ROWS)
    sample_ids = np.zeros(LONE_ROWS, np.uint64)
    batches: list[Batch] = [
        lambda piece=piece: (lone.read(piece, documents), sample_ids[: piece.windows])  # type: ignore[misc]
        for piece in lone.pieces
    ]
    return [piece.example for piece in lone.pieces], batches


def _sum(sums: list[BatchSums]) -> float:
    """The loss of all batches, added one after the other: the order is the same for any number of ranks."""
    total = 0.0
    for batch_sums in sums:
        total += batch_sums.loss
    return total


def _bits_per_byte(loss: float, snapshot: snapshots.Snapshot, split: str) -> float:
    """The bits of all tokens, divided by the bytes of the text."""
    assert isinstance(snapshot, shards.TextSnapshot)
    described = snapshot.splits[split]
    return loss * described.tokens / math.log(2) / described.text_bytes


def _score_with_reason(name: str, reason: str) -> Score:
    return Score(name, 0, 0, 0, 0, 0, reason)


@contextlib.contextmanager
def _folder(request: Mapping[str, Any], entry: Mapping[str, str], world: World) -> Iterator[Path]:
    """The folder of a readable checkpoint; a copy that this makes is removed at the end.

    Raises DamagedCheckpoint and TierUnavailable, on all ranks.
    """
    sources = request.get("source")
    if not sources:
        yield Path(request["durable"]) / entry["folder"]
        return
    into = Path(request["outcome"]).parent / job_result.RESTORED / entry["folder"]
    try:
        _say(world, f"{entry['name']}: copying it from {', '.join(sources)}")
        _agree(world, lambda: _fetch(sources, entry, into) if world.is_rank_zero else None)
        yield into
        world.all_gather(None)  # no rank reads from it any more
    finally:
        if world.is_rank_zero:
            shutil.rmtree(into, ignore_errors=True)


def _fetch(sources: list[str], entry: Mapping[str, str], into: Path) -> None:
    shutil.rmtree(into, ignore_errors=True)  # of an attempt that was killed
    source: TierSource = (
        copying.tier_at(sources[0]) if len(sources) == 1 else NodesTier([Path(folder) for folder in sources])
    )
    copying.fetch(source, entry["folder"], entry["manifest"], into)


def _verified(folder: Path, manifest: str, world: World) -> Contents:
    """The checkpoint once the ranks have verified, in shares, the files that its weights need.

    Raises DamagedCheckpoint, OSError and ValueError, on all ranks.
    """

    def share() -> Contents:
        checkpoint = checkpoints.open_unverified(folder, manifest)
        checkpoint.verify(sorted({*checkpoint.files_of("model"), PROGRESS})[world.rank :: world.size])
        return checkpoint

    return _agree(world, share)


def _agree(world: World, action: Callable[[], Done]) -> Done:
    """The result of an action of this rank, once no rank has failed in it; else the failure, on all ranks."""
    fault: Exception | None = None
    try:
        result = action()
    except (DamagedCheckpoint, TierUnavailable, OSError, ValueError) as error:
        fault = error
    failures = world.all_gather((type(fault), str(fault)) if fault else None)
    for kinds in ((DamagedCheckpoint,), (TierUnavailable, OSError, ValueError)):
        for one in failures:
            if one is not None and issubclass(one[0], kinds):
                raise fault if fault and isinstance(fault, kinds) else _like(*one)
    return result  # there is one, because no rank has failed


def _like(kind: type[Exception], message: str) -> Exception:
    """The failure of another rank."""
    known = (DamagedCheckpoint, TierUnavailable, OSError, ValueError)
    return next(base for base in known if issubclass(kind, base))(message)


def _samples(tier: Path, snapshot: snapshots.Snapshot, split: str, length: int, documents: bool) -> Samples:
    """The samples of a split, with the bounds of their documents if the model reads them (`documents`)."""
    if isinstance(snapshot, images.ImageSnapshot):
        return Pictures(tier, snapshot, split)
    plain = Sequences(tier, snapshot, split, length)
    return DocumentedSequences(plain) if documents else plain


def _by_dataset(
    snapshot: snapshots.Snapshot, split: str, samples: Samples, rows: int, with_tails: bool
) -> tuple[list[str], list[Batch]]:
    """The dataset of each batch, and the batches: of a mixture, no batch has samples of two datasets."""
    ranges = {snapshot.dataset: range(len(samples.shards))}
    if isinstance(snapshot, mixtures.MixtureSnapshot):
        ranges = snapshot.ranges(split)
    owners = list[str]()
    batches = list[Batch]()
    for name, of_dataset in ranges.items():
        own_batches = _batches(samples, rows, with_tails, of_dataset)
        owners = owners + [name] * len(own_batches)
        batches = batches + own_batches
    return owners, batches


def _batches(samples: Samples, rows: int, with_tails: bool, shard_range: range) -> list[Batch]:
    """Every sample of the shards in `shard_range`, with its number; with `with_tails`, also incomplete last ones."""
    begins = np.concatenate([[0], np.cumsum(samples.sizes)])
    begin = int(begins[shard_range.start])
    end = int(begins[shard_range.stop])
    batches: list[Batch] = [
        functools.partial(_read, samples, first, min(first + rows, end)) for first in range(begin, end, rows)
    ]
    if with_tails and not isinstance(samples, Pictures):
        batches += [
            functools.partial(_read_tail, samples, shard_index)
            for shard_index in samples.tail_shards
            if shard_index in shard_range
        ]
    return batches


def _read(samples: Samples, first: int, end: int) -> tuple[Rows, SampleNumbers]:
    numbers = np.arange(first, end, dtype=np.uint64)
    return samples.read(numbers), numbers


def _read_tail(samples: Sequences | DocumentedSequences, shard_index: int) -> tuple[Rows, SampleNumbers]:
    return samples.tail(shard_index), np.zeros(1, np.uint64)


def _progress(name: str, world: World, samples: Sized, rows: int) -> Any:
    """A function that reports the progress of the measurement from time to time."""
    last_time = time.monotonic()

    def report(done: int) -> None:
        nonlocal last_time
        if time.monotonic() - last_time >= LINE_SECONDS:
            last_time = time.monotonic()
            _say(world, f"{name}: {min(done * rows, len(samples))} of {len(samples)} samples, {rows} at once")

    return report


def _say(world: World, line: str) -> None:
    if world.is_rank_zero and world.size > 1:
        console.say(f"{PREFIX}{line}")


def main(arguments: list[str]) -> int:
    """Measure the checkpoints of a request and write the scores; returns 1 or 2, with a message, when it cannot."""
    if len(arguments) != 1:
        console.warn("usage: python -m slipway.trainer.evaluate REQUEST.json")
        return 2
    bind_to_launcher()
    request = parsing.value(regular_file.read(Path(arguments[0])))
    try:
        with join(requested(request)) as world:
            result = Scores(tuple(evaluate(request, world)))
            if world.is_rank_zero:
                _write(request, result)
    except ValueError as error:
        console.warn(f"{PREFIX}{error}")
        return 2
    except (OSError, MemoryError, TierUnavailable) as error:
        console.warn(f"{PREFIX}{error}")
        return 1
    return 0


def _write(request: Mapping[str, Any], result: Scores) -> None:
    if "outcome" in request:
        job_result.succeed(Path(request["outcome"]), codec.plain(result))
    else:
        codec.replace(Path(request["output"]), result, FORMAT)


if __name__ == "__main__":
    console.explain("slipway.trainer.evaluate", "measures checkpoints for the evaluation asset")
    sys.exit(main(sys.argv[1:]))
