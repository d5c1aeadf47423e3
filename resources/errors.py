"""Errors: what could not be asked or cannot serve now, and which errors are for people wherever they are shown.

The text of an error for people is one sentence that says what to do. Others are defects of the code, and are shown with
their stack.
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
_REMEDIES = {
    **dict.fromkeys(("SQLITE_NOTADB", "SQLITE_CORRUPT"), "it is damaged: slipway restore puts the last backup back"),
    **dict.fromkeys(("SQLITE_FULL", "SQLITE_IOERR"), "look at the disk of the home"),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM"), "look at the permissions of the home"),
    "SQLITE_BUSY": "another process holds it",
}
"""What to do about a database of SQLite that cannot be used, by the beginning of the error's name. Others of its errors
are defects of the code."""
_UNANSWERED = re.compile(r"API request to (?P<server>\w+://[^/\s]+)\S* failed with exception (?P<cause>.*)", re.DOTALL)
"""What MLflow's client says of a server that does not answer: its own retries, and the causes in one another."""


def is_for_people(error: BaseException) -> bool:
    """Whether the error's text is meant for a person."""
    if _of_database(error):
        return True
    names = {base.__name__ for base in type(error).__mro__}
    return isinstance(error, ValueError | OSError) or bool(names & EXPECTED)


def sentence(error: BaseException) -> str:
    """The error's text; of an error of the operating system, with its file first; of MLflow's, with the last cause."""
    if remedy := _of_database(error):
        return f"a database of the instance, dagster/ or mlflow.db: {getattr(error, 'orig', error)}; {remedy}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if match := _UNANSWERED.match(str(error)):
        cause = match["cause"].strip().rpartition(": ")[2].rstrip("\"')")
        cause += ")" * (cause.count("(") - cause.count(")"))  # those that were the cause's own
        return f"MLflow at {match['server']} does not answer: {cause}"
    return str(error)


class Unavailable(Exception):
    """It could not be asked. Nothing follows from that about the job or the node in question."""


class PlatformFault(Unavailable):
    """It answered that the platform lacks what the request needs: a permission, a kind, a queue, a webhook's consent.

    The request is as good as before. It is accepted once the platform has what the message names, which a person or an
    operator may see to; until then it is repeated, with pauses.
    """


def _of_database(error: BaseException) -> str:
    """What to do about an error of SQLite, also where SQLAlchemy passes it on; empty for all other errors."""
    name = getattr(getattr(error, "orig", error), "sqlite_errorname", "")
    return next((remedy for begin, remedy in _REMEDIES.items() if name.startswith(begin)), "")
