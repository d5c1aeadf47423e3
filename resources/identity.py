"""Identity: who asks for something to be done, for the record, and whether they may decide about champions.

A run that a sensor or a schedule started is the platform's own. One from the webserver has the person's name where a
proxy gave it (`slipway.resources.run_coordinator`), and so has one that was ended there. On the command line it is the
user of the operating system.
"""

import os
import pwd
from collections.abc import Collection, Mapping
from typing import Protocol

USER_TAG = "slipway/user"
"""On a run that came from the webserver: the person who asked for it, empty where nobody knows."""
CANCELLED_TAG = "slipway/cancelled-by"
"""On a run that was ended in the webserver: the person who did so, empty where nobody knows."""
_STARTED_BY = {"dagster/sensor_name": "sensor", "dagster/schedule_name": "schedule"}


class Asker(str):
    """Who asks, in words for the record. A plain text instead is a part of the platform."""

    person: str
    """The person's name; empty for one whom nobody knows."""

    def __new__(cls, text: str, person: str) -> "Asker":
        asker = super().__new__(cls, text)
        asker.person = person
        return asker

    def __reduce__(self) -> "tuple[type[Asker], tuple[str, str]]":
        return Asker, (str(self), self.person)  # a copy has the person too


class TaggedRun(Protocol):
    """The part of a run of Dagster that says whose it is."""

    @property
    def run_id(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


def of_run(run: TaggedRun) -> str:
    """Who asks by this run: ``sensor <name>, run <id>``, a person's ``<name>, run <id>``, or ``run <id>``."""
    if person := run.tags.get(USER_TAG, ""):
        return Asker(f"{person}, run {run.run_id}", person)
    started = next((f"{kind} {run.tags[tag]}" for tag, kind in _STARTED_BY.items() if tag in run.tags), "")
    if started and USER_TAG not in run.tags:  # else a person started it again
        return f"{started}, run {run.run_id}"
    return Asker(f"run {run.run_id}", "")


def of_cancellation(tags: Mapping[str, str], otherwise: str) -> str:
    """Who ended the run that has these tags; `otherwise` where nobody knows."""
    person = tags.get(CANCELLED_TAG, "")
    return Asker(person, person) if person else otherwise


def of_process() -> Asker:
    """The user of the operating system who runs this process, by the process's own number."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no entry
        name = f"user {os.getuid()}"
    return Asker(f"{name} by hand", name)


def refusal(by: str, promoters: Collection[str]) -> str:
    """Why this one may not decide about champions; empty when they may. `promoters` is empty for everybody."""
    if not promoters or not isinstance(by, Asker) or by.person in promoters:
        return ""
    name = by.person or f"nobody known ({by})"
    return f"found {name}, expected one of the platform's promoters: {', '.join(sorted(promoters))}"
