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
import torch.nn.functional as F
from torch import Tensor

from trainer import atomic, data, shards
from trainer.checkpoint import contents, format
from trainer.models.decoder import Decoder
from trainer.scores import FORMAT, Score, perplexity
from trainer.shapes import DecoderShape

ROWS = 16
"""Sequences evaluated at once."""


def evaluate(request: dict[str, Any]) -> list[Score]:
    """Measure the request's checkpoints: {tier, snapshot, split, durable, checkpoints: [{name, folder, manifest}]}."""
    tier = Path(request["tier"])
    snapshot = shards.read_manifest(tier, request["snapshot"])
    scores = []
    for entry in request["checkpoints"]:
        try:
            found = contents.read(Path(request["durable"]) / entry["folder"], entry["manifest"], "model")
        except format.Damaged as damage:
            scores.append(_without_figures(entry["name"], str(damage)))
            continue
        scores.append(_measure(entry["name"], found, tier, snapshot, request["split"]))
    return scores


def load(found: contents.Contents, vocab_size: int) -> Decoder:
    """The model of a checkpoint, ready to predict."""
    settings = found.progress().config
    model = Decoder(DecoderShape(**settings["model"]), vocab_size, settings["batch"]["length"])
    model.load_state_dict(found.tensors("model"))
    return model.eval()


def _measure(name: str, found: contents.Contents, tier: Path, snapshot: shards.Snapshot, split: str) -> Score:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = load(found, snapshot.tokenizer.vocab_size).to(device)
    sequences = data.Sequences(tier, snapshot, split, found.progress().config["batch"]["length"])
    loss, right, tokens = 0.0, 0, 0
    with torch.no_grad():
        for windows in _batches(sequences):
            batch = torch.from_numpy(windows).to(device).long()
            summed, correct = _score(model, batch)
            loss, right, tokens = loss + summed, right + correct, tokens + batch[:, 1:].numel()
    mean, described = loss / tokens, snapshot.splits[split]
    if not math.isfinite(mean):
        return _without_figures(name, f"its loss on the {split} split is {mean}")
    bits = mean * described.tokens / math.log(2)
    return Score(name, mean, perplexity(mean), bits / described.text_bytes, right / tokens, tokens)


def _without_figures(name: str, reason: str) -> Score:
    return Score(name, 0, 0, 0, 0, 0, reason)


def _batches(sequences: data.Sequences) -> Iterator[data.Tokens]:
    """Every predicted token of the split once."""
    numbers = np.arange(len(sequences), dtype=np.uint64)
    for start in range(0, len(numbers), ROWS):
        yield sequences.read(numbers[start : start + ROWS])
    yield from sequences.tails()


def _score(model: Decoder, windows: Tensor) -> tuple[float, int]:
    """Summed cross-entropy (nats) and right predictions; windows: [batch, length + 1]."""
    logits = model(windows[:, :-1]).float()
    targets = windows[:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return float(loss), int((logits.argmax(-1) == targets).sum())


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m trainer.evaluate REQUEST.json", file=sys.stderr)
        return 2
    request = json.loads(Path(arguments[0]).read_bytes())
    scores = evaluate(request)
    document = {"format": FORMAT, "scores": [asdict(score) for score in scores]}
    atomic.replace(Path(request["output"]), atomic.readable_json(document))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
