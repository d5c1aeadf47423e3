"""Errors: services that do not answer, and which errors are written for people.

The text of an error for people is one sentence that says what to do; they see it without a traceback. All other errors
are defects of the code, and are shown with their traceback.
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
"""Names of further errors, besides ValueError and OSError, whose text is written for people. They are names and not
classes because importing the classes would import heavy libraries that the process may not need."""
_REMEDIES = {
    **dict.fromkeys(("SQLITE_NOTADB", "SQLITE_CORRUPT"), "it is damaged: slipway restore puts the last backup back"),
    **dict.fromkeys(("SQLITE_FULL", "SQLITE_IOERR"), "look at the disk of the home"),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM"), "look at the permissions of the home"),
    "SQLITE_BUSY": "another process holds it",
}
"""What to do about an unusable SQLite database, by the beginning of the error's name. All other SQLite errors are
defects of the code."""
_UNANSWERED = re.compile(r"API request to (?P<server>\w+://[^/\s]+)\S* failed with exception (?P<cause>.*)", re.DOTALL)
"""The message of MLflow's client if the server does not answer: its retries, with nested causes."""


def is_for_people(error: BaseException) -> bool:
    """Whether the error's text is meant for a person."""
    if _of_database(error):
        return True
    names = {base.__name__ for base in type(error).__mro__}
    return isinstance(error, ValueError | OSError) or bool(names & EXPECTED)


def sentence(error: BaseException) -> str:
    """The error's text. An OSError names its file first; an MLflow error gives only the innermost cause."""
    remedy = _of_database(error)
    if remedy:
        return f"a database of the instance, dagster/ or mlflow.db: {getattr(error, 'orig', error)}; {remedy}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    match = _UNANSWERED.match(str(error))
    if match:
        cause = match["cause"].strip().rpartition(": ")[2].rstrip("\"')")
        cause += ")" * (cause.count("(") - cause.count(")"))  # rstrip also took the cause's own closing brackets
        return f"MLflow at {match['server']} does not answer: {cause}"
    return str(error)


class Unavailable(Exception):
    """A service did not answer. This says nothing about the state of the job or the node in question."""


class PlatformFault(Unavailable):
    """The service rejected a request because the platform lacks something: a permission, a kind of object, a queue, or
    the approval of a webhook.

    The request itself is valid. It is repeated, with pauses, until a person or an operator has added what the message
    names.
    """


def _of_database(error: BaseException) -> str:
    """What to do about an SQLite error, also one that SQLAlchemy wraps; "" for all other errors."""
    name = getattr(getattr(error, "orig", error), "sqlite_errorname", "")
    return next((remedy for begin, remedy in _REMEDIES.items() if name.startswith(begin)), "")
