"""Sampling: draws the next token of each row from its logits, with the request's settings."""

import math

import torch
from torch import Tensor

from slipway.serving.engine.sampling_settings import Sampling


def generator(sampling: Sampling) -> torch.Generator | None:
    """The random generator of one answer, or None for greedy sampling. It is on the CPU, whatever the model's
    device."""
    if sampling.temperature == 0:
        return None
    random = torch.Generator()
    if sampling.seed is not None:
        random.manual_seed(sampling.seed)
    else:
        random.seed()
    return random


def draw(logits: Tensor, how: list[tuple[Sampling, torch.Generator | None]]) -> list[int]:
    """Draw a token for each row of the logits, [rows, vocabulary], fp32."""
    chosen: list[int] = logits.argmax(-1).tolist()
    for row, (sampling, numbers) in enumerate(how):
        if numbers is not None:
            chosen[row] = _drawn(logits[row], sampling, numbers)
    return chosen


def _drawn(logits: Tensor, sampling: Sampling, numbers: torch.Generator) -> int:
    # Subtract the largest logit, in fp64: then no temperature, however small, gives values above 0, or NaN.
    scaled = ((logits.cpu().double() - logits.max().cpu()) / sampling.temperature).float()
    if sampling.top_p < 1:
        ordered, indexes = scaled.sort(descending=True)
        shares = ordered.softmax(-1)
        left_out = shares.cumsum(-1) - shares >= sampling.top_p
        left_out[0] = False  # always keep the likeliest token, even for a top_p of 0
        ordered[left_out] = -math.inf
        scaled = torch.empty_like(scaled).scatter_(0, indexes, ordered)
    # The largest value of probability / exponential noise is a draw by probability (the Gumbel trick). Bounds keep the
    # noise from being 0 or infinite, which could select a token that is left out.
    noise = torch.empty_like(scaled).exponential_(generator=numbers).clamp_(1e-30, 1e30)
    return int((scaled - noise.log()).argmax())
