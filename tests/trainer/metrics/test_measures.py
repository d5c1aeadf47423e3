"""Figures: each by its definition; and the verdict: what bounds a training, and what to do about it."""

import math

import pytest

from slipway.trainer.metrics.measures import MOST, Window, Work, of_step, verdict

pytestmark = pytest.mark.pure

HEALTHY = {"data": 0.01, "forward": 3.0, "backward": 6.0, "optimizer": 0.6, "communication": 0.3}


def window(mfu: float | None = None, checkpoint: float = 0.0, retries: int = 0, **changed: float) -> Window:
    """Ten seconds of a healthy training, with what is given changed."""
    parts = {**HEALTHY, **{name: value for name, value in changed.items() if name in HEALTHY}}
    usage = {name: value for name, value in changed.items() if name not in HEALTHY}
    return Window(10, 10.0, parts, checkpoint, usage, retries, mfu)


def test_mfu_is_the_model_s_arithmetic_over_the_devices_peak():
    """An 8-billion decoder at 6,667 tokens/s on each of eight H100: 39 %, as torchtitan publishes it."""
    work = Work(samples=8, tokens=8 * 8192, flops=int(57.9e9) * 8 * 8192, peak=8 * 989e12)
    figures = of_step(work, loss=2.0, accuracy=0.5, seconds=8 * 8192 / (8 * 6667))
    assert figures["mfu"] == pytest.approx(0.39, abs=0.001)
    assert figures["tokens_per_second"] == pytest.approx(8 * 6667)
    assert figures["samples_per_second"] == pytest.approx(8 * 6667 / 8192)
    assert figures["perplexity"] == pytest.approx(math.exp(2))


def test_without_a_data_sheet_there_is_no_mfu():
    assert "mfu" not in of_step(Work(8, 8 * 32, 1000, None), 2.0, 0.5, 1.0)


def test_pictures_have_samples_and_neither_tokens_nor_perplexity():
    figures = of_step(Work(samples=64, tokens=0, flops=1000, peak=None), loss=2.0, accuracy=0.5, seconds=2.0)
    assert figures["samples_per_second"] == 32
    assert not {"tokens_per_second", "perplexity"} & set(figures)


def test_a_training_that_only_computes_is_bound_by_computing():
    judgement = verdict(window())
    assert judgement.bound == "compute" and judgement.share == pytest.approx(0.96)


def test_computing_far_below_the_peak_comes_with_advice():
    assert "31% of its peak: try bf16, layout.compile" in verdict(window(mfu=0.31)).recommendation
    assert verdict(window(mfu=0.45)).recommendation == verdict(window()).recommendation


@pytest.mark.parametrize(
    ("changed", "bound", "share", "sentence"),
    [
        ({"data": 1.2}, "data", 0.12, "12% of the time goes into waiting for data"),
        ({"communication": 2.5}, "communication", 0.25, "25% of the time goes into waiting for other ranks"),
        ({"checkpoint": 0.08}, "checkpoint", 0.08, "8% of the time goes into writing checkpoints"),
        ({"cpu_wait": 0.4}, "cpu", 0.4, "40% of the time goes into waiting for a core"),
        (
            {"cpu_wait": 0.2, "cpu_throttled": 0.9, "cpu_quota": 0.1},
            "cpu",
            0.9,
            "The container has used its limit of 0.1 cores up in 90% of the time",
        ),
        ({"gpu_use": 0.6}, "cpu", 0.4, "The GPU is idle for 40% of the time"),
        ({"host_memory_free_share": 0.02}, "memory", 0.02, "2.0% of the host's memory is left"),
        ({"retries": 3}, "memory", 0.0, "The GPU's memory ran short 3 times"),
    ],
)
def test_the_verdict_names_the_part_that_takes_the_time(
    changed: dict[str, float], bound: str, share: float, sentence: str
):
    judgement = verdict(window(**changed))  # type: ignore[arg-type]
    assert judgement.bound == bound and judgement.share == pytest.approx(share)
    assert judgement.recommendation.startswith(sentence)


def test_the_verdict_names_the_part_that_exceeds_its_share_by_most():
    """A fifth of the time in communication is a third more than it should be; as much in data is four times that."""
    assert verdict(window(communication=2.0, data=2.0)).bound == "data"
    assert verdict(window(communication=6.0, data=0.6)).bound == "communication"


def test_an_idle_gpu_is_bound_by_the_host_only_if_it_waits_for_nothing_else():
    assert verdict(window(gpu_use=0.6, data=3.0)).bound == "data"


def test_memory_comes_before_everything_else():
    assert verdict(window(retries=1, data=9.0)).bound == "memory"


@pytest.mark.parametrize("name", ["data", "communication"])
def test_a_part_within_its_share_is_not_named(name: str):
    at_most = MOST[name] * 10.0
    assert verdict(window(**{name: at_most})).bound == "compute"  # type: ignore[arg-type]
    assert verdict(window(**{name: at_most * 1.01})).bound == name  # type: ignore[arg-type]
