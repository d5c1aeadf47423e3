"""The times in objects, and how much faster than on a real cluster slow things happen here."""

from datetime import UTC, datetime

HURRY = 100.0
"""Detection times, toleration seconds and back-offs are divided by this. Grace periods of processes are not."""


def now(after: float = 0.0) -> str:
    """metav1.Time: whole seconds, UTC; `after` so many seconds."""
    moment = datetime.fromtimestamp(datetime.now(UTC).timestamp() + after, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def now_exactly() -> str:
    """metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
