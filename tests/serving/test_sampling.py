"""Sampling: what is drawn follows the probabilities, within those that `top_p` leaves."""

import pytest
import torch

from slipway.serving.engine import sampling
from slipway.serving.engine.sampling_settings import Sampling

LOGITS = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()


def drawn(times: int, **how: float) -> list[int]:
    """How often each token was drawn, in so many answers with a seed each."""
    counts = [0] * LOGITS.shape[1]
    for seed in range(times):
        settings = Sampling(seed=seed, **how)
        counts[sampling.draw(LOGITS.clone(), [(settings, sampling.generator(settings))])[0]] += 1
    return counts


def test_all_tokens_are_drawn_by_their_probability():
    counts = drawn(2000)
    assert all(abs(count / 2000 - share) < 0.05 for count, share in zip(counts, (0.5, 0.3, 0.15, 0.05), strict=True))


def test_top_p_draws_only_the_likeliest_tokens_that_together_have_it():
    counts = drawn(1000, top_p=0.7)
    assert counts[2:] == [0, 0]
    assert abs(counts[0] / 1000 - 0.5 / 0.8) < 0.06


def test_the_likeliest_token_is_left_however_small_top_p_is():
    assert drawn(50, top_p=1e-9) == [50, 0, 0, 0]


@pytest.mark.parametrize("top_p", [0.0, -0.0, 1e-300, 1e-30, 0.1])
def test_a_top_p_of_0_leaves_the_likeliest_token_alone(top_p: float):
    shuffled = LOGITS[:, [3, 1, 0, 2]]
    for seed in range(20):
        settings = Sampling(1.0, top_p, seed)
        assert sampling.draw(shuffled.clone(), [(settings, sampling.generator(settings))]) == [2]


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-6])
@pytest.mark.parametrize("scale", [1.0, 1e30, -1e30])
def test_however_small_the_temperature_the_likeliest_token_is_drawn(temperature: float, scale: float):
    logits = torch.tensor([[0.5, -1.0, 3.0, 1.0]]) * scale
    for top_p in (1.0, 0.5, 0.0):
        settings = Sampling(temperature, top_p, 7)
        assert sampling.draw(logits.clone(), [(settings, sampling.generator(settings))]) == [int(logits.argmax())]


def test_equal_seeds_draw_equal_tokens():
    assert drawn(20, top_p=0.9) == drawn(20, top_p=0.9)


def test_each_row_of_a_batch_is_drawn_as_its_own_request_asks():
    greedy, narrow = Sampling(temperature=0.0), Sampling(top_p=0.1, seed=1)
    rows = [(row, sampling.generator(row)) for row in (greedy, narrow)]
    assert sampling.draw(LOGITS.repeat(2, 1), rows) == [0, 0]
