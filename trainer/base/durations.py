"""Durations in words, the same in logs, pages and notifications."""


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 40 s, 12 min, 3 h 20 min, 5 days."""
    if seconds is None:
        return "-"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours / 24:.1f} days"
