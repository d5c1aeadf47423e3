"""Layouts: every one of them trains as a single process does, loss for loss and gradient for gradient (T2, T3).

Real ranks under torchrun. A world is started once and takes all its layouts in turn, each twice.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import CODE, settings
from trainer import config

ROUNDING = 2e-6
"""How far losses (near 4) and gradient norms (near 1) may be off after 20 steps in fp32: sums in another order."""
NARROW = 0.02
"""The same where matrices are multiplied in 16 bits: their rounding differs with their shapes."""
STEPS = 20
UNEVEN = {"sequences": 7, "micro": 2}


@dataclass(frozen=True)
class Case:
    ranks: int
    layout: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)


FULL, HYBRID = {"shard": "full"}, {"shard": "hybrid", "shard_ranks": 2}
CASES = {
    "DDP": Case(2, {}),
    "FSDP": Case(2, FULL),
    "TP": Case(2, {"tensor": 2}),
    "PP 1F1B": Case(2, {"pipeline": 2}),
    "PP GPipe": Case(2, {"pipeline": 2, "schedule": "gpipe"}),
    "FSDP, recomputing": Case(2, {**FULL, "activations": "recompute"}),
    "TP, recomputing": Case(2, {"tensor": 2, "activations": "selective"}),
    "PP, recomputing": Case(2, {"pipeline": 2, "activations": "recompute"}),
    "DDP, frozen": Case(2, {}, {"freeze": ["embedding", "blocks.0.attention."]}),
    "FSDP, frozen": Case(2, FULL, {"freeze": ["embedding", "blocks.0.attention."]}),
    "DDP of three": Case(3, {}),
    "FSDP of three": Case(3, FULL),
    "PP of three": Case(3, {"pipeline": 3}, model={"layers": 4}),
    "HSDP": Case(4, HYBRID),
    "DP x TP": Case(4, {"tensor": 2}),
    "FSDP x TP": Case(4, {**FULL, "tensor": 2}),
    "PP x DP": Case(4, {"pipeline": 2}),
    "PP x FSDP": Case(4, {**FULL, "pipeline": 2}),
    "PP x TP": Case(4, {"pipeline": 2, "tensor": 2}),
    **{f"DDP in {kind}": Case(2, {}, {"precision": kind}) for kind in ("bf16", "fp16")},
    **{f"FSDP in {kind}": Case(2, FULL, {"precision": kind}) for kind in ("bf16", "fp16")},
    **{f"TP in {kind}": Case(2, {"tensor": 2}, {"precision": kind}) for kind in ("bf16", "fp16")},
    **{f"PP in {kind}": Case(2, {"pipeline": 2}, {"precision": kind}) for kind in ("bf16", "fp16")},
}


def rows(*ranks: int) -> list[Any]:
    """The cases of so many ranks; more than two take longer to start than a fast test may."""
    slow = [] if 2 in ranks else [pytest.mark.slow]
    return [pytest.param(name, id=name, marks=slow) for name, case in CASES.items() if case.ranks in ranks]


ALL = rows(2) + rows(3, 4)


class Worlds:
    """What each case saw, by a world of its own size or by one process; each world is started when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[int, dict[str, Any]] = {}

    def by(self, ranks: int, name: str) -> dict[str, Any]:
        if ranks not in self._seen:
            self._seen[ranks] = self._run(ranks)
        seen: dict[str, Any] = self._seen[ranks][name]
        assert "failed" not in seen, seen["failed"]
        return seen

    def _run(self, ranks: int) -> dict[str, Any]:
        folder = self._folder / str(ranks)
        folder.mkdir()
        alone, cases = ranks == 1, {name: case for name, case in CASES.items() if case.ranks == ranks or ranks == 1}
        paths = {name: str(configuration(folder, name, case, alone)) for name, case in cases.items()}
        paths |= {} if alone else {f"{name} again": path for name, path in paths.items()}
        (folder / "named").write_text(json.dumps(paths))
        agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
        module = [*([] if alone else agent), "tests.trainer.layout_process", str(folder / "named"), str(folder)]
        surroundings = {**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        ended = subprocess.run(
            [sys.executable, "-m", *module], cwd=CODE, env=surroundings, capture_output=True, text=True, timeout=280
        )
        assert ended.returncode == 0, ended.stderr
        return {name: json.loads((folder / f"{name}.json").read_text()) for name in paths}


def configuration(folder: Path, name: str, case: Case, alone: bool) -> Path:
    """The file of a case, in its layout or in none."""
    placement = {"store": str(folder / "store"), "durable": str(folder / "durable"), "nvme": str(folder / "nvme")}
    named = {"format": config.FORMAT, "training": "tiny", "snapshot": "0" * 64, "placement": placement}
    sections = settings(batch=UNEVEN, run=dict(case.run), model=dict(case.model))
    path = folder / f"{name}.config.json"
    path.write_text(json.dumps({**named, **sections, "layout": {} if alone else case.layout}))
    return path


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(tmp_path_factory.mktemp("worlds"))


@pytest.mark.parametrize("name", ALL)
def test_losses_and_gradient_norms_are_those_of_one_process(worlds: Worlds, name: str) -> None:
    case = CASES[name]
    ours, alone = worlds.by(case.ranks, name), worlds.by(1, name)
    tolerance = ROUNDING if case.run.get("precision", "fp32") == "fp32" else NARROW
    assert len(ours["losses"]) == STEPS
    assert ours["losses"] == pytest.approx(alone["losses"], abs=tolerance)
    assert ours["norms"] == pytest.approx(alone["norms"], abs=tolerance)
    assert ours["validation"] == pytest.approx(alone["validation"], abs=tolerance)
    assert ours["losses"][-1] < ours["losses"][0] - 0.5


@pytest.mark.parametrize("name", ALL)
def test_a_second_run_has_the_same_bits(worlds: Worlds, name: str) -> None:
    ranks = CASES[name].ranks
    assert worlds.by(ranks, name) == worlds.by(ranks, f"{name} again")


@pytest.mark.parametrize("name", ALL)
def test_names_are_those_of_the_whole_model(worlds: Worlds, name: str) -> None:
    case = CASES[name]
    (whole,) = worlds.by(1, name)["names"]
    ours = worlds.by(case.ranks, name)["names"]
    assert sorted(set().union(*ours)) == whole
    held = sum(map(len, ours))
    assert held == len(whole) * case.ranks // case.layout.get("pipeline", 1)


@pytest.mark.parametrize(
    ("name", "share"), [("DDP", 1), ("FSDP", 1 / 2), ("PP GPipe", 1 / 2), ("TP", 0.6)]
)  # fmt: skip
def test_a_rank_holds_no_more_than_its_part(worlds: Worlds, name: str, share: float) -> None:
    """The embedding, the head and the norms are whole on each rank of a tensor-parallel group."""
    (whole,) = worlds.by(1, name)["held"]
    assert max(worlds.by(2, name)["held"]) <= math.ceil(whole * share) + 32
