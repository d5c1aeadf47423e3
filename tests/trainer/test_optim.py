"""The learning rate's shape, and what decays."""

import pytest

from trainer.models.decoder import Decoder
from trainer.optim import adamw, learning_rate
from trainer.sections import Optimiser
from trainer.shapes import DecoderShape


def rates(steps: int, **settings: float) -> list[float]:
    config = Optimiser(**{"learning_rate": 2.0, "final_fraction": 0.25, **settings})  # type: ignore[arg-type]
    return [learning_rate(config, step, steps) for step in range(steps)]


def test_the_rate_climbs_linearly_to_the_highest() -> None:
    assert rates(20, warmup_steps=4)[:4] == [0.5, 1.0, 1.5, 2.0]


def test_the_first_step_already_learns() -> None:
    assert all(rate > 0 for rate in rates(20, warmup_steps=10))


def test_after_warm_up_the_rate_falls_in_a_cosine_to_the_final_fraction_of_the_highest() -> None:
    falling = rates(15, warmup_steps=4)[4:]
    assert falling[0] == 2.0
    assert falling[5] == pytest.approx((2.0 + 0.5) / 2)
    assert falling[-1] == pytest.approx(0.5)
    assert falling == sorted(falling, reverse=True)


def test_without_warm_up_the_first_step_has_the_highest_rate() -> None:
    assert rates(10)[0] == 2.0


def test_a_run_of_one_step_and_one_that_only_warms_up_have_rates_too() -> None:
    assert rates(1) == [2.0]
    assert rates(2, warmup_steps=4) == [0.5, 1.0]
    assert rates(5, warmup_steps=4)[-1] == 2.0


def test_matrices_decay_and_norms_do_not() -> None:
    model = Decoder(DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64), 64, 16)
    config = Optimiser(learning_rate=0.1, weight_decay=0.3, beta1=0.8, beta2=0.9)
    decaying, constant = adamw(model, config).param_groups
    assert (decaying["weight_decay"], constant["weight_decay"]) == (0.3, 0.0)
    assert {parameter.dim() for parameter in decaying["params"]} == {2}
    assert len(constant["params"]) == 2 * 2 + 1
    assert decaying["betas"] == (0.8, 0.9)
