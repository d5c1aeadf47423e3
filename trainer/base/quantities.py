"""Quantities in words, the same in logs, pages and notifications: durations, bytes, and counts of things."""

BYTE_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def duration(seconds: float | None) -> str:
    """Seconds for people: 40 s, 12 min, 3 h 20 min, 5 days."""
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


def bytes_in_words(count: float) -> str:
    """Bytes as people read them: "1.2 GB", "640 bytes"."""
    for unit, scale in BYTE_UNITS:
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} bytes"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun; the plural has an s unless `plural` is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
