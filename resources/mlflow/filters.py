"""Filters: texts in MLflow's filter language, which has two kinds of quotes but no way to escape them."""


def equal(field: str, value: str) -> str:
    """The clause that `field` equals `value`, with quotes that the value does not contain.

    Raises ValueError if the value contains both kinds of quotes.
    """
    quote = '"' if "'" in value else "'"
    if quote in value:
        raise ValueError(f"{field}: found {value}, expected a text without either ' or \"")
    return f"{field} = {quote}{value}{quote}"
