"""Invalid values of a configuration or a record: the dotted name of the field, and the expected value."""


class Invalid(ValueError):
    """A value that cannot be used; `field` is its dotted name, as written in the file."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def require(condition: bool, field: str, message: str) -> None:
    """Raise `Invalid` for `field` unless `condition` holds."""
    if not condition:
        raise Invalid(field, message)


def positive(section: object, *names: str) -> None:
    """Require fields of a section to be above 0."""
    for name in names:
        require(getattr(section, name) > 0, name, "expected a number above 0")
