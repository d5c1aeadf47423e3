"""Errors for people: those whose text is one sentence that says what to do, wherever they are shown.

Others are defects of the code, and are shown with their stack.
"""

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


def sentence(error: BaseException) -> str:
    """The error's text; of an error of the operating system, with its file first."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
