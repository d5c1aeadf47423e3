"""The embedded instance: the whole platform on one machine, with all its state in one folder."""


class CannotStart(Exception):
    """The instance cannot run here. The message says what was found and what was expected."""
