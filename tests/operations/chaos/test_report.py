"""The report of chaos: each fault beside the incident that was recorded for it."""

from dataclasses import replace

import pytest

from slipway.operations.chaos.course import Injection
from slipway.operations.chaos.report import judged
from slipway.trainer.record import causes
from slipway.trainer.record.incidents import IncidentRecord

pytestmark = pytest.mark.pure


def fault(name: str, at: float, training: str = "a") -> Injection:
    return Injection(name, training, 1, "something", "node-1", at, 10)


def incident(kind: str, at: float, generation: int = 0) -> IncidentRecord:
    return IncidentRecord(f"000001.{generation:04d}", kind, "a reason", "restarted", "supervisor", at, 10)


def steps(*at: float) -> dict[str, list[float]]:
    return {"a": list(at)}


def test_a_fault_is_found_when_an_incident_with_its_cause_follows():
    report = judged([fault("rank-killed", 100)], {"a": [incident(causes.KILLED, 101)]}, {})
    [result] = report.results
    assert result.right and result.seconds == 1 and report.share_right == 1 and not report.unexplained


def test_an_incident_with_another_cause_is_a_wrong_answer():
    report = judged([fault("rank-stopped", 100)], {"a": [incident(causes.KILLED, 110)]}, {})
    assert not report.results[0].right and report.results[0].incident is not None and report.share_right == 0


def test_two_faults_have_an_incident_each():
    faults = [fault("rank-killed", 100), fault("rank-killed", 200)]
    report = judged(faults, {"a": [incident(causes.KILLED, 101)]}, steps(90, 110))
    assert [result.right for result in report.results] == [True, False]
    assert report.results[1].incident is None and report.results[1].seconds is None


def test_a_fault_before_the_incident_of_the_one_before_is_the_same_event():
    faults = [fault("node-partitioned", 100), fault("node-killed", 112)]
    report = judged(faults, {"a": [incident(causes.DISRUPTED, 113)]}, steps(90, 101, 120))
    assert [result.right for result in report.results] == [True, True] and report.complete and not report.unexplained


def test_a_fault_before_a_step_after_the_incident_is_the_same_event():
    faults = [fault("rank-stopped", 100), fault("keeper-killed", 112)]
    report = judged(faults, {"a": [incident(causes.HUNG, 110)]}, steps(90, 120))
    assert report.share_right == 1


def test_a_fault_after_an_incident_that_was_survived_is_an_event_of_its_own():
    survived = replace(incident(causes.SPIKE, 101), survived=True)
    faults = [fault("loss-spike", 100), fault("rank-killed", 105)]
    assert [result.right for result in judged(faults, {"a": [survived]}, steps(90)).results] == [True, False]


def test_a_second_incident_of_an_event_that_names_no_fault_of_it_is_listed():
    recorded = [incident(causes.KILLED, 101), incident(causes.STORAGE, 103, 1)]
    report = judged([fault("rank-killed", 100), fault("node-killed", 102)], {"a": recorded}, {})
    assert report.share_right == 1 and [incident_record.kind for incident_record in report.unexplained] == [
        causes.STORAGE
    ]


def test_a_fault_that_must_not_be_noticed_is_right_without_an_incident():
    faults = [fault("keeper-stopped", 100), fault("rank-killed", 105)]
    report = judged(faults, {"a": [incident(causes.KILLED, 106)]}, {})
    assert report.share_right == 1 and report.results[0].incident is None
    assert judged(faults[:1], {"a": [incident(causes.KILLED, 106)]}, {}).share_right == 0


def test_an_incident_of_another_training_is_no_answer_and_is_listed():
    report = judged([fault("rank-killed", 100)], {"b": [incident(causes.KILLED, 101)]}, {})
    assert not report.results[0].right and len(report.unexplained) == 1


def test_what_happened_before_the_first_fault_does_not_count():
    recorded = [incident(causes.HUNG, 50), incident(causes.KILLED, 101, 1)]
    report = judged([fault("rank-killed", 100)], {"a": recorded}, {})
    assert report.share_right == 1 and not report.unexplained
