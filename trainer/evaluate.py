"""Evaluation in a process of its own: ``python -m trainer.evaluate request.json`` measures checkpoints.

One process measures all that wait, so that torch is imported and the split is opened once. The request
names the checkpoints by folder and manifest; each is verified before it is read, and one that is damaged or
predicts no number gets a result that says so. Scores go to the request's `output`, in one atomic write.
"""

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainer import atomic, config, contents, images, models, shards, snapshots
from trainer.checkpoint import contents as checkpoints
from trainer.checkpoint import format
from trainer.checkpoint.contents import Contents
from trainer.data import Sequences
from trainer.models.model import Model, Places, Rows
from trainer.pictures import Pictures
from trainer.scores import FORMAT, Score, perplexity

ROWS = 16
"""Samples evaluated at once."""


def evaluate(request: dict[str, Any]) -> list[Score]:
    """Measure the request's checkpoints: {tier, snapshot, split, durable, checkpoints: [{name, folder, manifest}]}.

    Raises ValueError for a checkpoint of another layout than our models have.
    """
    tier = Path(request["tier"])
    snapshot = snapshots.read(tier, request["snapshot"])
    scores = []
    for entry in request["checkpoints"]:
        try:
            found = checkpoints.read(Path(request["durable"]) / entry["folder"], entry["manifest"], "model")
        except format.Damaged as damage:
            scores.append(_without_figures(entry["name"], str(damage)))
            continue
        scores.append(_measure(entry["name"], found, tier, snapshot, request["split"]))
    return scores


def load(found: Contents, snapshot: snapshots.Snapshot) -> Model:
    """The model of a checkpoint, ready to predict."""
    settings = found.progress().config
    shape, length = config.shape(settings["model"]), settings["batch"]["length"]
    model = models.build(shape, contents.data(snapshot, shape, length, settings["run"]["seed"]))
    model.load_state_dict(found.tensors("model"))
    return model.eval()


def _measure(name: str, found: Contents, tier: Path, snapshot: snapshots.Snapshot, split: str) -> Score:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load(found, snapshot).to(device)
    length = found.progress().config["batch"]["length"]
    loss, right, predicted = 0.0, 0, 0
    with torch.no_grad():
        for rows, places in _batches(tier, snapshot, split, length, whole=model.causal):
            inputs, targets = model.prepare(rows, places, device)
            outputs = model(inputs)
            loss += float(model.loss(outputs, targets))
            right += int(model.correct(outputs, targets))
            predicted += targets.numel() if model.causal else len(places) * model.targets_per_sample
    mean = loss / predicted
    if not math.isfinite(mean):
        return _without_figures(name, f"its loss on the {split} split is {mean}")
    bits = _bits_per_byte(mean, snapshot, split) if model.causal else 0.0
    return Score(name, mean, perplexity(mean), bits, right / predicted, predicted)


def _bits_per_byte(loss: float, snapshot: snapshots.Snapshot, split: str) -> float:
    """All tokens' bits, spread over the text."""
    assert isinstance(snapshot, shards.Snapshot)
    described = snapshot.splits[split]
    return loss * described.tokens / math.log(2) / described.text_bytes


def _without_figures(name: str, reason: str) -> Score:
    return Score(name, 0, 0, 0, 0, 0, reason)


def _batches(
    tier: Path, snapshot: snapshots.Snapshot, split: str, length: int, whole: bool
) -> Iterator[tuple[Rows, Places]]:
    """Every sample of the split once, with its place; if `whole`, also the tokens that fill no sequence."""
    samples: Sequences | Pictures
    if isinstance(snapshot, images.Snapshot):
        samples = Pictures(tier, snapshot, split)
    else:
        samples = Sequences(tier, snapshot, split, length)
    numbers = np.arange(len(samples), dtype=np.uint64)
    for start in range(0, len(numbers), ROWS):
        chosen = numbers[start : start + ROWS]
        yield samples.read(chosen), chosen
    if whole and isinstance(samples, Sequences):
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
    document = {"format": FORMAT, "scores": [asdict(score) for score in scores]}
    atomic.replace(Path(request["output"]), atomic.readable_json(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
