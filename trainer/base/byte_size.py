"""Byte size: bytes in words, in the unit that fits them, the same in logs and messages."""

UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def words(count: float) -> str:
    """Bytes as people read them: "1.2 GB", "640 bytes"."""
    for unit, scale in UNITS:
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:.0f} bytes"
