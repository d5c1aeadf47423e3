"""The embedded instance: the whole platform on one machine, with all of its state in one folder."""


class CannotStart(Exception):
    """The instance cannot run here; the message says what was found and what is expected."""
