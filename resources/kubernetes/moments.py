"""Kubernetes' times, RFC 3339 in UTC, as seconds since the epoch. Pure."""

from datetime import datetime


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
