"""SQL literals, for values that a statement cannot take as parameters, such as the paths in a view."""

from collections.abc import Iterable


def literal(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Iterable[str]) -> str:
    """Texts as a duckdb list of SQL literals."""
    return f"[{', '.join(map(literal, texts))}]"
