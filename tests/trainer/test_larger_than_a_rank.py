"""A model larger than the memory of any one rank is evaluated, and exported, under the kernel's own limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer import evaluate, models
from slipway.trainer.base import atomic
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.config import evaluating, resolved
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record import job_result
from slipway.trainer.start import drawing
from tests.trainer.checkpoints import save_of
from tests.trainer.conftest import LENGTH, VOCAB, Training, settings, wait
from tests.trainer.test_evaluation_ranks import scores

RANKS = 4
TINY = {"layers": 2, "width": 64, "heads": 8, "kv_heads": 8, "hidden": 64}
SHAPE = {"layers": 48, "width": 512, "heads": 8, "kv_heads": 8, "hidden": 1024}
MEGABYTES = 512
"""The weights: 48 blocks of 10.5 MB."""
LIMIT = MEGABYTES * 3 // 5
"""The kernel counts what is reserved and never written too: 89 MB before the first weight."""
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
"""What is freed goes back to the kernel at once."""


def checkpoint(folder: Path, shape: dict[str, Any]) -> dict[str, str]:
    """A checkpoint of a new model, as a request names it."""
    sections: dict[str, Any] = {**settings(), "model": shape}
    model = models.build(DecoderShape(**shape), Data(vocabulary=VOCAB, length=LENGTH))
    drawing.draw(model, 0)
    lineage = {"tokenizer": "0" * 64}
    commit = save_of(folder, model, TrainingProgress(1, 0, 0, {}, {}, config=sections, lineage=lineage, at=0.0))
    return {"name": folder.name, "folder": commit.folder, "manifest": commit.manifest}


def written(training: Training, folder: Path, shape: dict[str, Any], ranks: int) -> Path:
    """A request to evaluate a new checkpoint of this shape."""
    config = evaluating.configuration({**settings(), "model": shape}, Evaluation(), ranks)
    document = {
        "tier": str(training.durable),
        "durable": str(folder / "durable"),
        "snapshot": training.snapshot.sha256,
        "split": "validation",
        "checkpoints": [checkpoint(folder, shape)],
        "config": resolved.dump(config),
        "outcome": str(folder / "outcome.json"),
    }
    return write(folder / "request.json", document)


def write(path: Path, document: dict[str, Any]) -> Path:
    path.write_bytes(atomic.readable_json(document))
    return path


def limited(training: Training, ranks: int, megabytes: int, *arguments: object) -> tuple[int, str]:
    agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
    command = [*(agent if ranks > 1 else []), "tests.trainer.limited_rank", str(megabytes), *map(str, arguments)]
    ended = wait(training.spawn(*command, **ALLOCATOR))
    return ended.code, ended.err


@pytest.mark.nightly
def test_a_model_that_no_rank_may_hold_is_evaluated_by_four_ranks(training: Training, tmp_path: Path) -> None:
    tiny, large = (
        written(training, tmp_path / name, shape, RANKS) for name, shape in (("tiny", TINY), ("large", SHAPE))
    )
    code, err = limited(training, RANKS, LIMIT, "evaluate", tiny, large)
    assert code == 0, err
    [score] = scores(tmp_path / "large" / "outcome.json")
    alone = {name: value for name, value in json.loads(large.read_bytes()).items() if name != "config"}
    [expected] = evaluate.evaluate(alone)
    assert (score.loss, score.accuracy) == pytest.approx((expected.loss, expected.accuracy), rel=1e-6)
    small = write(tmp_path / "small.json", {**json.loads(tiny.read_bytes()), "config": None})
    code, err = limited(training, 1, LIMIT, "evaluate", small, write(tmp_path / "alone.json", alone))
    assert code != 0 and "out of memory with the weights alone" in err


@pytest.mark.nightly
def test_a_model_eight_times_a_process_limit_is_exported(training: Training, tmp_path: Path) -> None:
    entry, outcome = checkpoint(tmp_path / "large", SHAPE), tmp_path / "exported.json"
    request = {
        "checkpoint": str(tmp_path / "large" / "durable" / entry["folder"]),
        "manifest": entry["manifest"],
        "target": str(tmp_path / "out"),
        "tokenizer": "",
        "precision": "bf16",
        "file_bytes": 50_000_000,
        "outcome": str(outcome),
    }
    code, err = limited(training, 1, MEGABYTES // 8, "export", write(tmp_path / "request.json", request))
    assert code == 0, err
    ended = job_result.read(outcome)
    assert ended is not None and len(ended.result["manifest"]) == 64
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_bytes())
    assert index["metadata"]["total_size"] == pytest.approx(MEGABYTES * 1e6 / 2, rel=0.05)
