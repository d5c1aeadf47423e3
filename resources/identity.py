"""Identity: who requests an action, for the record, and whether that person may decide about champions.

A run that a sensor or a schedule started belongs to the platform. A run that was started or ended in the webserver
carries the person's name if a proxy sent it (`slipway.resources.run_coordinator`). On the command line, the actor is
the user of the operating system.
"""

import os
import pwd
from collections.abc import Collection, Mapping
from typing import Protocol

USER_TAG = "slipway/user"
"""The tag of a run from the webserver: the person who started it, or "" if unknown."""
CANCELLED_TAG = "slipway/cancelled-by"
"""The tag of a run that was ended in the webserver: the person who ended it, or "" if unknown."""
_STARTED_BY = {"dagster/sensor_name": "sensor", "dagster/schedule_name": "schedule"}


class Asker(str):
    """A person as the actor, in words for the record. A plain `str` as the actor is a part of the platform."""

    person: str
    """The person's name, or "" if unknown."""

    def __new__(cls, text: str, person: str) -> "Asker":
        asker = super().__new__(cls, text)
        asker.person = person
        return asker

    def __reduce__(self) -> "tuple[type[Asker], tuple[str, str]]":
        return Asker, (str(self), self.person)  # so that a copy keeps the person


class TaggedRun(Protocol):
    """The attributes of a Dagster run that identify its actor."""

    @property
    def run_id(self) -> str: ...
    @property
    def tags(self) -> Mapping[str, str]: ...


def of_run(run: TaggedRun) -> str:
    """The actor of a run: ``sensor <name>, run <id>``, a person's ``<name>, run <id>``, or ``run <id>``."""
    person = run.tags.get(USER_TAG, "")
    if person:
        return Asker(f"{person}, run {run.run_id}", person)
    started = next((f"{kind} {run.tags[tag]}" for tag, kind in _STARTED_BY.items() if tag in run.tags), "")
    if started and USER_TAG not in run.tags:  # with the tag, a person has started the run again
        return f"{started}, run {run.run_id}"
    return Asker(f"run {run.run_id}", "")


def of_cancellation(tags: Mapping[str, str], otherwise: str) -> str:
    """The person who ended the run with these tags, or `otherwise` if unknown."""
    person = tags.get(CANCELLED_TAG, "")
    return Asker(person, person) if person else otherwise


def of_process() -> Asker:
    """The user of the operating system who runs this process, by the process's user id."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user may have no entry
        name = f"user {os.getuid()}"
    return Asker(f"{name} by hand", name)


def refusal(by: str, promoters: Collection[str]) -> str:
    """Why this actor may not decide about champions; "" if they may. With empty `promoters`, everybody may."""
    if not promoters or not isinstance(by, Asker) or by.person in promoters:
        return ""
    name = by.person or f"nobody known ({by})"
    return f"found {name}, expected one of the platform's promoters: {', '.join(sorted(promoters))}"
