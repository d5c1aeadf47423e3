"""Mixing: the order of a mixture's samples, and its validation samples, from manifest and configuration alone."""

import numpy as np
import numpy.typing as npt

from slipway.trainer.config.mix import Mix
from slipway.trainer.config.sections import Batch, Run
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.loading.blend import Blend, Source
from slipway.trainer.loading.order import Indices, Order

Sizes = npt.NDArray[np.int64]
"""The samples of each shard of a split, over all datasets of the mixture."""


def blend(snapshot: MixtureSnapshot, mix: Mix | None, sizes: Sizes, batch: Batch, run: Run) -> Blend:
    """The order of a training's samples.

    Raises ValueError for a mix that names other datasets than the mixture, for a dataset without a sample, and for one
    that the training would read more often than the mix allows.
    """
    ranges = snapshot.ranges("train")
    _check_names(snapshot, mix)
    assert mix is not None
    begins = np.concatenate([[0], np.cumsum(sizes)])
    sources = list[Source]()
    for name, shards in ranges.items():
        _check_size(name, "train", int(sizes[shards.start : shards.stop].sum()), batch.length)
        own = Order(sizes[shards.start : shards.stop], f"{run.seed}/{name}", run.shuffle_shards)
        sources.append(Source(name, own, shards.start, int(begins[shards.start])))
    phases = [(begin * batch.sequences, parts) for begin, parts in mix.until(run.steps)]
    mixture = Blend(sources, phases)
    _check_passes(mixture.passes(run.steps * batch.sequences), mix.passes_at_most)
    return mixture


def held_out(snapshot: MixtureSnapshot, sizes: Sizes, count: int) -> dict[str, Indices]:
    """The samples that validation measures, by dataset: equal shares of `count`, and at least one sample each.

    So the loss does not depend on the weights of the mix, and trainings with different mixes compare. Raises ValueError
    for a dataset without a sample in the validation split.
    """
    begins = np.concatenate([[0], np.cumsum(sizes)])
    ranges = snapshot.ranges("validation")
    indices = dict[str, Indices]()
    for index, (name, shards) in enumerate(ranges.items()):
        first = int(begins[shards.start])
        end = int(begins[shards.stop])
        _check_size(name, "validation", end - first, 0)
        share = count * (index + 1) // len(ranges) - count * index // len(ranges)
        indices[name] = np.arange(first, min(end, first + max(1, share)), dtype=np.uint64)
    return indices


def _check_names(snapshot: MixtureSnapshot, mix: Mix | None) -> None:
    known = [source.dataset for source in snapshot.sources]
    if mix is None:
        raise ValueError(
            f"mix: found none, expected weights for {', '.join(known)}: the snapshot is a mixture of these"
        )
    unknown = [name for name in mix.names if name not in known]
    if unknown:
        raise ValueError(f"mix: found {', '.join(unknown)}, expected the datasets of the mixture: {', '.join(known)}")


def _check_size(name: str, split: str, samples: int, length: int) -> None:
    if not samples:
        of = f" of {length} tokens" if length else ""
        raise ValueError(f"dataset {name}: split {split} has no sequence{of}, expected one at least")


def _check_passes(passes: dict[str, float], limit: float | None) -> None:
    over = [f"{name} {times:.2f} times" for name, times in passes.items() if limit is not None and times > limit]
    if over:
        raise ValueError(
            f"mix.passes_at_most: found a training that reads {', '.join(over)}, expected {limit:g} times at most; "
            "give it a smaller weight, or the training fewer steps"
        )
