"""Sampling settings. They import no torch, because the parsing of requests uses them too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """A request's settings for drawing tokens."""

    temperature: float = 1.0
    """0 always takes the likeliest token."""
    top_p: float = 1.0
    """Draws only from the likeliest tokens that together have this probability."""
    seed: int | None = None
    """Equal seeds give equal answers if the logits are equal; other requests in the batch can change their last
    bits."""
