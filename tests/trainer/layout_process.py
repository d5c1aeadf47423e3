"""A rank of tests/trainer/step/test_parallel.py: trains one model in several layouts, and says what it saw.

Called with a file of configurations by name and the folder for the results, under torchrun or alone.
"""

import dataclasses
import hashlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from slipway.trainer.config import layout, resolved
from slipway.trainer.data import documents
from slipway.trainer.elastic import process_groups
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine

VOCABULARY, STEPS, VALIDATED = 64, 20, 5


def sequences(numbers: Any, length: int) -> Any:
    """Tokens of which each is likely to follow from the one before, decided by the place of their sequence."""
    rows = [np.random.default_rng(int(number)).integers(0, 5, length + 1).cumsum() % VOCABULARY for number in numbers]
    return np.array(rows, np.uint16).reshape(-1, length + 1)


def rows(settings: resolved.Config, numbers: Any) -> Any:
    """The sequences of these places; with the bounds of documents of 5 to 9 tokens, where the model reads them."""
    tokens = sequences(numbers, settings.batch.length)
    if not settings.model.reads_documents:
        return tokens
    offsets = [np.arange(0, 99, 5 + int(number) % 5).astype(np.uint64) for number in numbers]
    begins = [documents.begins(document_offsets, 3, tokens.shape[1]) for document_offsets in offsets]
    return documents.Documented(tokens, np.array(begins, np.uint32).reshape(tokens.shape))


def run(settings: resolved.Config, world: World) -> dict[str, Any]:
    """Twenty steps, and what can be seen of them on rank 0."""
    events: list[str] = []
    data = Data(vocabulary=VOCABULARY, length=settings.batch.length)
    engine = Engine(settings, world, data, lambda event, **_: events.append(event))
    begun = world.all_gather(_whole_digests(engine))
    targets = settings.batch.sequences * engine.targets_per_sample
    losses, norms = [], []
    for step in range(STEPS):
        span = rank_slice(settings.batch.sequences, world.data_rank, world.data_size)
        numbers = (step * settings.batch.sequences + np.arange(span.start, span.stop)).astype(np.uint64)
        sums = engine.accumulate(rows(settings, numbers), numbers)
        losses.append(world.all_reduce(sums.loss)[0] / targets)
        norms.append(engine.clip())
        engine.update(settings.optimizer.learning_rate)
    span = rank_slice(VALIDATED, world.data_rank, world.data_size)
    numbers = np.arange(span.start, span.stop, dtype=np.uint64)
    measured = world.all_reduce(engine.measure(rows(settings, numbers), numbers, VALIDATED).loss)[0]
    return {
        "begun": {name: digest for digests in begun for name, digest in digests.items()},
        "losses": losses,
        "norms": norms,
        "validation": measured / VALIDATED / engine.targets_per_sample,
        "events": events,
        "extra": engine.extra_state(),
        "names": world.all_gather(sorted(name for name, _ in engine.model.named_parameters())),
        "held": world.all_gather(sum(_local(parameter).numel() for parameter in engine.model.parameters())),
        "digests": world.all_gather(_digest(engine)),
    }


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local_tensor: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local_tensor.detach()


def _whole_digests(engine: Engine) -> dict[str, str]:
    """Of each whole parameter that this rank has a part of, bit for bit."""
    digests = {}
    for name, parameter in engine.model.named_parameters():
        full_tensor = (parameter.full_tensor() if isinstance(parameter, DTensor) else parameter).detach()
        digests[name] = hashlib.sha256(full_tensor.contiguous().numpy().tobytes()).hexdigest()
    return digests


def _digest(engine: Engine) -> str:
    """Of this rank's weights and moments, bit for bit."""
    digest = hashlib.sha256()
    for _, parameter in sorted(engine.model.named_parameters()):
        for tensor in (parameter, *engine.optimizer.state[parameter].values()):
            digest.update(_local(tensor).contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()


def main(configurations: Path, results: Path) -> None:
    torch.use_deterministic_algorithms(True)
    named = json.loads(configurations.read_text())
    with process_groups.join() as world:
        for name, path in named.items():
            settings = resolved.load(Path(path))
            mesh = layout.check(settings, world.size, world.size)
            try:
                results_of_layout = run(settings, dataclasses.replace(world, mesh=mesh))
            except Exception:
                # A layout that fails must not take the others' results with it.
                results_of_layout = {"failed": traceback.format_exc()}
            if world.is_rank_zero:
                (results / f"{name}.json").write_text(json.dumps(results_of_layout))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
