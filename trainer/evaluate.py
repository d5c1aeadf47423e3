"""Evaluation in a process of its own: ``python -m trainer.evaluate REQUEST.json`` measures checkpoints.

One process measures all checkpoints of a request, so that torch is imported and the split is opened once. The request
names each checkpoint by its folder and manifest. Each is verified before it is read; a damaged one, and one whose loss
is not finite, gets a score with the reason. The scores are written to the request's `output` in one atomic write.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer import models
from trainer.base import codec, not_by_hand
from trainer.checkpoint.disk import contents as checkpoints
from trainer.checkpoint.disk.contents import Contents
from trainer.checkpoint.disk.reading import DamagedCheckpoint
from trainer.config import resolved
from trainer.config.shapes import network_of
from trainer.data import contents, images, shards, snapshots
from trainer.data.documents import DocumentedSequences
from trainer.data.pictures import Pictures
from trainer.data.sequences import Sequences
from trainer.models.model import Model, Rows, SampleNumbers
from trainer.models.outline import without_memory
from trainer.record.scores import FORMAT, Score, Scores, perplexity
from trainer.start import drawing

ROWS = 16
"""Samples in a batch."""


def evaluate(request: dict[str, Any]) -> list[Score]:
    """Measure the checkpoints of a request: {tier, snapshot, split, durable, checkpoints: [{name, folder, manifest}]}.

    Raises ValueError for a checkpoint whose files have another layout.
    """
    tier = Path(request["tier"])
    snapshot = snapshots.read(tier, request["snapshot"])
    scores = []
    for entry in request["checkpoints"]:
        try:
            found = checkpoints.open_verified(Path(request["durable"]) / entry["folder"], entry["manifest"], "model")
        except DamagedCheckpoint as damage:
            scores.append(_score_with_reason(entry["name"], str(damage)))
            continue
        scores.append(_measure(entry["name"], found, tier, snapshot, request["split"]))
    return scores


def load_model(found: Contents, snapshot: snapshots.Snapshot) -> Model:
    """The model of a checkpoint, in evaluation mode."""
    settings = found.progress().config
    shape, length = resolved.shape(settings["model"]), settings["batch"]["length"]
    data = contents.data(snapshot, shape, length, settings["run"]["seed"])
    if drawing.says_how_it_begins(network_of(shape.kind)):
        with without_memory():
            model = models.build(shape, data)
        drawing.allocate(model, model, torch.device("cpu"))
    else:
        model = models.build(shape, data)
    found.load({f"model/{name}": tensor for name, tensor in model.state_dict().items()})
    return model.eval()


def _measure(name: str, found: Contents, tier: Path, snapshot: snapshots.Snapshot, split: str) -> Score:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load_model(found, snapshot).to(device)
    length = found.progress().config["batch"]["length"]
    loss, right, predicted = 0.0, 0, 0
    with torch.no_grad():
        for rows, places in _batches(tier, snapshot, split, length, model):
            inputs, targets = model.prepare(rows, places, device)
            outputs = model(inputs, *model.bounds(rows, device))
            loss += float(model.loss(outputs, targets))
            right += int(model.correct(outputs, targets))
            predicted += targets.numel() if model.causal else len(places) * model.targets_per_sample
    mean = loss / predicted
    if not math.isfinite(mean):
        return _score_with_reason(name, f"its loss on the {split} split is {mean}")
    bits = _bits_per_byte(mean, snapshot, split) if model.causal else 0.0
    return Score(name, mean, perplexity(mean), bits, right / predicted, predicted)


def _bits_per_byte(loss: float, snapshot: snapshots.Snapshot, split: str) -> float:
    """The bits of all tokens, divided by the bytes of the text."""
    assert isinstance(snapshot, shards.TextSnapshot)
    described = snapshot.splits[split]
    return loss * described.tokens / math.log(2) / described.text_bytes


def _score_with_reason(name: str, reason: str) -> Score:
    return Score(name, 0, 0, 0, 0, 0, reason)


def _batches(
    tier: Path, snapshot: snapshots.Snapshot, split: str, length: int, model: Model
) -> Iterator[tuple[Rows, SampleNumbers]]:
    """Every sample of the split once, with its number; of a causal model also the tokens that fill no sequence."""
    samples: Sequences | DocumentedSequences | Pictures
    if isinstance(snapshot, images.ImageSnapshot):
        samples = Pictures(tier, snapshot, split)
    else:
        plain = Sequences(tier, snapshot, split, length)
        samples = DocumentedSequences(plain) if model.reads_documents else plain
    numbers = np.arange(len(samples), dtype=np.uint64)
    for start in range(0, len(numbers), ROWS):
        chosen = numbers[start : start + ROWS]
        yield samples.read(chosen), chosen
    if model.causal and not isinstance(samples, Pictures):
        for tail in samples.tails():
            yield tail, np.zeros(1, np.uint64)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m trainer.evaluate REQUEST.json", file=sys.stderr)
        return 2
    request = json.loads(Path(arguments[0]).read_bytes())
    try:
        scores = evaluate(request)
    except ValueError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return 2
    codec.replace(Path(request["output"]), Scores(tuple(scores)), FORMAT)
    return 0


if __name__ == "__main__":
    not_by_hand.explain("trainer.evaluate", "measures checkpoints for the evaluation asset")
    sys.exit(main(sys.argv[1:]))
