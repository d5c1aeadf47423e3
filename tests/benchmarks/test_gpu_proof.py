"""The proof of the GPU path: it answers at once without a GPU, keeps to its budget, and runs whole on a CPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_proof
from tests.trainer.conftest import CODE

ON_A_GPU_ALONE = {"stale", "fp8"}


def proof(*arguments: str, seconds: float = 60.0) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.gpu_proof", *arguments]
    return subprocess.run(command, cwd=CODE, capture_output=True, text=True, timeout=seconds)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_on_a_machine_without_a_gpu_it_says_so_and_proves_nothing():
    done = proof()
    assert (done.returncode, done.stdout) == (0, "")
    assert "there is no GPU here" in done.stderr


def test_a_part_that_does_not_fit_the_rest_of_the_budget_is_skipped_with_the_reason():
    [only] = lines(proof("--device", "cpu", "--only", "step", "--seconds", "1").stdout)
    assert (only["part"], only["ok"], only["seconds"]) == ("step", None, 0.0)
    assert only["skipped"] == "1 s of the budget are left"


def test_a_part_that_takes_too_long_is_ended_and_the_line_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(gpu_proof.PARTS, "environment", gpu_proof.Part("processes", 0.05))
    result = gpu_proof.result_of("environment", "cuda", 60.0)
    assert result["ok"] is False and result["error"] == "took longer than 0 s"


def test_the_budget_is_of_eight_minutes_and_no_part_alone_takes_all_of_it():
    assert gpu_proof.BUDGET_SECONDS == 480 and max(part.limit for part in gpu_proof.PARTS.values()) < 480


@pytest.mark.nightly
def test_the_whole_proof_runs_on_a_cpu_and_says_what_only_a_gpu_can_show(tmp_path: Path):
    done = proof("--device", "cpu", "--out", str(tmp_path), "--seconds", "1500", seconds=1600)
    results = {line["part"]: line for line in lines(done.stdout)}
    assert list(results) == list(gpu_proof.PARTS)
    assert {name: line.get("error") for name, line in results.items() if line["ok"] is False} == {}
    assert {name for name, line in results.items() if line["ok"] is None} == ON_A_GPU_ALONE
    assert all("needs CUDA" in results[name]["skipped"] for name in ON_A_GPU_ALONE)
    assert lines((tmp_path / "proof.jsonl").read_text()) == lines(done.stdout)
    assert done.returncode == 0
