"""Counts in words: "1 rank", "2 ranks", "3,000 steps". A sentence about one thing must not speak of several."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, whose plural has an s unless `plural` says otherwise."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
