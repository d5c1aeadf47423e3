"""Shares: a rank that starts, restores or begins with given weights holds its part and one parameter, at no time more.

Measured by the kernel, in real ranks under torchrun (benchmarks/parts/start_rank.py).
"""

import json
from pathlib import Path

import pytest

from benchmarks import start

SLACK = 24 << 20
"""Bytes of what a start holds beside tensors: tiles, plans, headers, what gloo and the allocator keep."""
MODEL = {"width": 512, "heads": 8, "kv_heads": 4, "hidden": 1536}


def peaks(folder: Path, layout: str, layers: int) -> dict[str, dict[str, float]]:
    """The figures of each way to begin."""
    ranks, chosen = start.LAYOUTS[layout]
    config = start.configuration(folder, {**MODEL, "layers": layers}, chosen)
    start.torchrun(ranks, "benchmarks.parts.start_rank", config, "save,draw,restore,init", folder)
    return {action: json.loads((folder / f"{action}.json").read_text()) for action in start.ACTIONS}


def check(peaks_by_action: dict[str, dict[str, float]], gradients: float = 0.0) -> None:
    for action, figures in peaks_by_action.items():
        assert figures["peak"] <= figures["share"] + gradients + 1.1 * figures["largest"] + SLACK, (action, figures)
    assert peaks_by_action["restore"]["share"] == pytest.approx(3 * peaks_by_action["draw"]["share"], rel=0.01)


@pytest.mark.slow
def test_two_ranks_hold_their_shares_and_one_parameter(tmp_path: Path) -> None:
    """A whole model would be 160 MB more than a share."""
    peaks_by_action = peaks(tmp_path, "FSDP, 2 ranks", layers=16)
    check(peaks_by_action)
    assert peaks_by_action["draw"]["share"] > 2 * SLACK + peaks_by_action["draw"]["largest"]


@pytest.mark.nightly
@pytest.mark.parametrize("layout", [name for name in start.LAYOUTS if name != "FSDP, 2 ranks"])
def test_ranks_of_every_layout_hold_their_shares_and_one_parameter(tmp_path: Path, layout: str) -> None:
    peaks_by_action = peaks(tmp_path, layout, layers=16)
    # DDP has memory for gradients from its construction on: as many bytes as the weights.
    check(peaks_by_action, gradients=peaks_by_action["draw"]["share"] if layout.startswith("DDP") else 0.0)
