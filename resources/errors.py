"""Errors for people: those whose text is one sentence that says what to do, wherever they are shown.

Others are defects of the code, and are shown with their stack.
"""

import re

EXPECTED = {
    "Unavailable",
    "TierUnavailable",
    "Unreachable",
    "DamagedCheckpoint",
    "CannotStart",
    "MlflowException",
    "HelmError",
    "LostWorkers",
    "NotPlanned",
}
"""The names of errors, beside ValueError and OSError, whose text is meant for a person. A class is looked for by name,
since importing it would import what the work at hand may not need."""


def is_for_people(error: BaseException) -> bool:
    """Whether the error's text is meant for a person."""
    names = {each.__name__ for each in type(error).__mro__}
    return isinstance(error, ValueError | OSError) or bool(names & EXPECTED)


_UNANSWERED = re.compile(r"API request to (?P<server>\w+://[^/\s]+)\S* failed with exception (?P<cause>.*)", re.DOTALL)
"""What MLflow's client says of a server that does not answer: its own retries, and the causes in one another."""


def sentence(error: BaseException) -> str:
    """The error's text; of an error of the operating system, with its file first; of MLflow's, with the last cause."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if found := _UNANSWERED.match(str(error)):
        cause = found["cause"].strip().rpartition(": ")[2].rstrip("\"')")
        cause += ")" * (cause.count("(") - cause.count(")"))  # those that were the cause's own
        return f"MLflow at {found['server']} does not answer: {cause}"
    return str(error)
