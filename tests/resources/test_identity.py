"""Identity: who asks is known by the run's tags or by the system's user, and only promoters decide about champions."""

import copy
import getpass
from dataclasses import dataclass, field

import pytest

from slipway.resources import identity
from slipway.resources.identity import USER_TAG, Asker


@dataclass(frozen=True)
class Run:
    tags: dict[str, str] = field(default_factory=dict)
    run_id: str = "12ab"


SENSOR = {"dagster/sensor_name": "promotions"}


def test_a_run_of_a_sensor_is_the_platforms_own():
    by = identity.of_run(Run(SENSOR))
    assert by == "sensor promotions, run 12ab"
    assert identity.refusal(by, ["ann"]) == ""


@pytest.mark.parametrize("more", [{}, SENSOR])
def test_a_run_from_the_webserver_is_the_persons_whom_the_proxy_named(more: dict[str, str]):
    by = identity.of_run(Run({USER_TAG: "ann", **more}))
    assert by == "ann, run 12ab"
    assert identity.refusal(by, ["ann", "bob"]) == ""
    assert identity.refusal(by, ["bob"]) == "found ann, expected one of the platform's promoters: bob"


@pytest.mark.parametrize("tags", [{}, {USER_TAG: ""}, {USER_TAG: "", **SENSOR}])
def test_a_person_whom_nobody_knows_may_decide_only_where_everybody_may(tags: dict[str, str]):
    by = identity.of_run(Run(tags))
    assert identity.refusal(by, []) == ""
    assert "found nobody known (run 12ab), expected one of" in identity.refusal(by, ["ann"])


def test_on_the_command_line_it_is_the_systems_user_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LOGNAME", raising=False)
    known = identity.of_process()
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert getpass.getuser() == "somebody-else"
    assert identity.of_process() == known and known.person == known.removesuffix(" by hand")


def test_an_asker_is_written_down_as_its_words():
    assert f"{Asker('ann by hand', 'ann')}" == "ann by hand"


def test_a_copy_of_an_asker_is_the_same_person():
    copied = copy.deepcopy(Asker("ann by hand", "ann"))
    assert (copied, copied.person) == ("ann by hand", "ann")
