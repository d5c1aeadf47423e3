"""What the conditions of any object say, and the API's times as seconds. Pure."""

from collections.abc import Mapping
from datetime import datetime

from slipway.resources.kubernetes.objects import KubernetesObject


def holding(found: KubernetesObject) -> dict[str, KubernetesObject]:
    """The conditions that hold, by type."""
    return {each["type"]: each for each in found.get("status", {}).get("conditions") or () if each["status"] == "True"}


def why(condition: Mapping[str, str]) -> str:
    """The message and the reason of a condition."""
    message, reason = condition.get("message", ""), condition.get("reason", "")
    return f"{message} ({reason})" if message and reason else message or reason


def seconds(text: str | None) -> float | None:
    """A time of the API (RFC 3339) as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else None
