"""Sampling settings: what a request and the engine both know, without torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How a request wants its tokens drawn."""

    temperature: float = 1.0
    """0 for the likeliest token."""
    top_p: float = 1.0
    """Only the likeliest tokens that together have this probability are drawn."""
    seed: int | None = None
    """Equal seeds give equal answers while logits are equal; other requests in the batch change their last bits."""
