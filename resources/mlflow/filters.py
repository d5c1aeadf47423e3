"""Filters: how a text stands in a filter of MLflow's, whose language has quotes and no way to write one inside them."""


def equal(field: str, value: str) -> str:
    """The clause that `field` is `value`, between those quotes that the value does not have.

    Raises ValueError for a value that has both kinds, which no filter can name.
    """
    quote = '"' if "'" in value else "'"
    if quote in value:
        raise ValueError(f"{field}: found {value}, expected a text that does not have both ' and \"")
    return f"{field} = {quote}{value}{quote}"
