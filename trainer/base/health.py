"""Health: what a process says of itself over HTTP, in one form for all of them.

    GET /live     200 while the process answers: for a probe that ends what hangs
    GET /health   200 and {"problems": {}}; 503 and what is wrong, by subject, otherwise: for people and alerts

A probe that ends a process never asks for problems: a tier that is away isn't mended by another start.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

LIVE, HEALTH = "/live", "/health"
KIND = "application/json"


@dataclass(frozen=True)
class HealthAnswer:
    """An answer over HTTP, as JSON."""

    status: int
    body: str


def live() -> HealthAnswer:
    """The answer to /live."""
    return HealthAnswer(200, json.dumps({"live": True}))


def health(problems: Mapping[str, str]) -> HealthAnswer:
    """The answer to /health; `problems` says by subject what is wrong with it."""
    return HealthAnswer(503 if problems else 200, json.dumps({"problems": dict(problems)}, ensure_ascii=False))
