"""Measuring: a checkpoint's loss over samples that are divided between the ranks, in batches that fit the memory.

Of n data-parallel ranks, each measures every n-th batch. The sums are added in the order of the batches, so the result
does not depend on the number of ranks. All ranks call the model equally often, because they gather weights together: a
rank without a batch left measures one again, and its result is dropped.
"""

import contextlib
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from slipway.trainer.config.resolved import Config
from slipway.trainer.metrics import usage
from slipway.trainer.models.model import NO_TARGET, Data, Model, Rows, SampleNumbers, Vocabulary
from slipway.trainer.node.world import World
from slipway.trainer.step import building, exhaustion, parallel
from slipway.trainer.step.parallel.replicas import free_gathered_weights
from slipway.trainer.step.passes import score

ROWS = 16
"""The largest batch, in samples: larger ones are no faster."""
USED = 0.8
"""The share of the free memory that a batch may take. The memory of one sample is measured once."""
PARTS = 10
"""Equal parts of the probability from 0 to 1, by which predictions are counted."""
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")

Batch = Callable[[], tuple[Rows, SampleNumbers]]
"""Reads the samples of one batch, and their numbers."""


@dataclass(frozen=True)
class BatchSums:
    """The sums over one batch."""

    number: int
    loss: float
    right: int
    predicted: int
    confidence: tuple[tuple[int, float, int], ...] = ()
    """As in `slipway.trainer.record.scores.ExampleSums`; empty unless requested."""


@contextlib.contextmanager
def finding_no_memory(what: str) -> Iterator[None]:
    """The context of `what`: raises MemoryError, with a remedy, when memory runs out in it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not exhaustion.is_out_of_memory(error):
            raise
        more = "divide the weights over more ranks (evaluation.ranks), or take fewer samples (evaluation.batch)"
        raise MemoryError(f"out of memory {what}: {more}") from error


class Measurement:
    """A model laid over the ranks without gradients; a checkpoint is loaded into the tensors of `model`."""

    def __init__(self, config: Config, world: World, data: Data) -> None:
        """All ranks call it at the same time. Raises ValueError for settings that do not fit the model."""
        self.world = world
        self._devices = parallel.device_mesh(world)
        divided = building.built(config, self._devices, data, world.device)
        self.model: Model = divided.model.eval()
        self._targets_per_sample = divided.targets_per_sample

    @torch.no_grad()
    def sums(
        self, batches: Sequence[Batch], on_round: Callable[[int], None] = lambda _: None, confidence: bool = False
    ) -> list[BatchSums]:
        """The sums of each batch, in order, on every rank; `on_round` is called with the number of batches done.

        With `confidence`, the sums include the calibration counts. All ranks call it with equally many batches. Raises
        MemoryError when one does not fit.
        """
        shares = self.world.data_size
        own_sums = list[BatchSums]()
        for first in range(0, len(batches), shares):
            number = first + self.world.data_rank
            batch_sums = self._batch(number % len(batches), batches, confidence)
            if number < len(batches):
                own_sums.append(batch_sums)
            on_round(min(first + shares, len(batches)))
        free_gathered_weights(self.model)
        gathered = self.world.all_gather(own_sums if self.world.counts_losses else [])
        return sorted((entry for of_rank in gathered for entry in of_rank), key=lambda entry: entry.number)

    def _batch(self, number: int, batches: Sequence[Batch], confidence: bool = False) -> BatchSums:
        rows, sample_ids = batches[number]()
        with finding_no_memory(f"with {len(sample_ids)} samples at once"):
            inputs, targets = self.model.prepare(rows, sample_ids, self.world.device)
            if self.model.causal:
                parallel.take_length(self.model, self._devices, inputs.shape[1])
            outputs = self.model(inputs, *self.model.bounds(rows, self.world.device))
            loss, right = score(self.model, outputs, targets, len(sample_ids))
            summed_loss = float(loss)
            right_count = int(right)
            counts = self._confidence(outputs, targets) if confidence else ()
        predicted = targets.numel() if self.model.causal else len(sample_ids) * self._targets_per_sample
        return BatchSums(number, summed_loss, right_count, predicted, counts)

    def _confidence(self, outputs: Tensor, targets: Tensor) -> tuple[tuple[int, float, int], ...]:
        """Predictions, summed confidences and hits in each of `PARTS` parts; empty if a rank has not all logits.

        outputs: [..., tokens or classes], targets: [...].
        """
        if type(self.model.vocabulary) is not Vocabulary or outputs.dim() != targets.dim() + 1:
            return ()
        logits = outputs.float()
        there = targets != NO_TARGET
        highest = logits.amax(-1)
        sure = (highest - logits.logsumexp(-1)).exp()[there]
        right = (logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1) == highest)[there]
        part = (sure * PARTS).long().clamp(max=PARTS - 1)
        counts = torch.bincount(part, minlength=PARTS)
        sums = torch.bincount(part, weights=sure.double(), minlength=PARTS)
        hits = torch.bincount(part, weights=right.double(), minlength=PARTS)
        return tuple(zip(counts.tolist(), sums.tolist(), map(int, hits.tolist()), strict=True))

    def rows_that_fit(self, sample: Batch) -> int:
        """The number of samples that fit every rank at once, from 1 to `ROWS`, from the memory that one sample takes.

        All ranks call it at the same time. Raises MemoryError when one sample does not fit.
        """
        device = self.world.device
        before = _start_of_peak(device)
        with torch.no_grad():
            self._batch(0, [sample])
        free_gathered_weights(self.model)
        one = max(1, _peak(device) - before)
        fits = int(USED * _free(device) / one)
        return max(1, min(ROWS, *self.world.all_gather(fits)))


def _start_of_peak(device: torch.device) -> int:
    """Begin to measure the peak; returns the bytes that are in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    try:
        CLEAR.write_text("5")  # resets VmHWM, proc(5)
    except OSError:
        return _status("VmHWM")
    return _status("VmRSS")


def _peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def _free(device: torch.device) -> float:
    """Bytes that this rank may still allocate: on its GPU, or in its share of the host within its process limits."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    free = usage.host_memory()["host_memory_free"] / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for limit, used in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            free = min(free, most - _status(used))
    return free


def _status(name: str) -> int:
    """A number of this process in bytes, as proc(5) names it."""
    lines = STATUS.read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
