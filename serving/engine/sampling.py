"""Sampling: the next token of each row from its logits, as the request asks."""

import math

import torch
from torch import Tensor

from serving.engine.plain import Sampling


def generator(sampling: Sampling) -> torch.Generator | None:
    """The random numbers of one answer, None where none are drawn; on the CPU, whatever the model's device."""
    if sampling.temperature == 0:
        return None
    made = torch.Generator()
    made.manual_seed(sampling.seed) if sampling.seed is not None else made.seed()
    return made


def draw(logits: Tensor, how: list[tuple[Sampling, torch.Generator | None]]) -> list[int]:
    """A token for each row of the logits: [rows, vocabulary], fp32."""
    chosen: list[int] = logits.argmax(-1).tolist()
    for row, (sampling, numbers) in enumerate(how):
        if numbers is not None:
            chosen[row] = _drawn(logits[row], sampling, numbers)
    return chosen


def _drawn(logits: Tensor, sampling: Sampling, numbers: torch.Generator) -> int:
    scaled = logits.cpu() / sampling.temperature
    if sampling.top_p < 1:
        ordered, places = scaled.sort(descending=True)
        shares = ordered.softmax(-1)
        ordered[shares.cumsum(-1) - shares >= sampling.top_p] = -math.inf  # the first is always kept
        scaled = torch.empty_like(scaled).scatter_(0, places, ordered)
    # The largest of probability / exponential noise is a draw by probability (the Gumbel trick).
    noise = torch.empty_like(scaled).exponential_(generator=numbers)
    return int((scaled - noise.log()).argmax())
