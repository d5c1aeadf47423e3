"""Memory: a model whose weights or whose shortest cache does not fit is refused, with sizes, before it is loaded."""

from pathlib import Path

import pytest
import torch

from slipway.serving import worker
from slipway.serving.engine import weights
from slipway.serving.engine.weights import Refused
from slipway.serving.order import WorkerOrder
from tests.serving.models import exported


def order(durable: Path) -> WorkerOrder:
    version = exported(durable, 1)
    return WorkerOrder(durable / version.folder, version.manifest, "small@1", "1", rows=4)


def test_weights_that_do_not_fit_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "free_bytes", lambda device: 1000)
    monkeypatch.setattr(weights, "read", lambda *_: pytest.fail("they were read"))
    with pytest.raises(Refused, match=r"the weights take .* MiB, and 0 MiB of memory are free"):
        worker.load(order(tmp_path))


def test_a_model_beside_which_no_answer_fits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    worker_order = order(tmp_path)
    needed = weights.least_bytes(worker_order.folder, torch.float32)
    monkeypatch.setattr(worker, "free_bytes", lambda device: int(needed / worker.MEMORY_SHARE) + 100)
    with pytest.raises(Refused, match=r"beside the weights .* expected .* MiB for one answer"):
        worker.load(worker_order)


def test_free_memory_is_what_the_machine_says_or_its_control_group_leaves():
    free = worker.free_bytes(torch.device("cpu"))
    total = int(Path("/proc/meminfo").read_text().split()[1]) << 10
    assert 0 < free < total
