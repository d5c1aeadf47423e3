"""The standing of a node: what puts it out of service, the guards that keep it in, and what brings it back."""

from dataclasses import replace

import pytest

from slipway.resources.fleet.health import transitions
from slipway.resources.fleet.health.standing import Evidence, HealthRules, NodeRecord, Standing, Weight, unknown
from slipway.resources.fleet.health.transitions import WITHHELD, Surroundings
from slipway.trainer.base.units import DAY

pytestmark = pytest.mark.pure

NOW, BY = 1_000_000.0, "node health"
RULES = HealthRules(apply=True)
ALONE = Surroundings(nodes=32, out_of_service=())
HEALTHY = unknown("node-7")


def evidence(id: str, weight: Weight = Weight.MACHINE, fault: str = "hung", at: float = NOW, by: str = "a") -> Evidence:
    return Evidence(id, fault, f"{fault} in {id}", weight, at, by)


def suspected(
    record: NodeRecord,
    *observed_evidence: Evidence,
    around: Surroundings = ALONE,
    rules: HealthRules = RULES,
    now: float = NOW,
) -> NodeRecord:
    """The record after this was seen; the same one where nothing follows."""
    return transitions.suspected(record, observed_evidence, around, rules, BY, now) or record


def quarantined() -> NodeRecord:
    return suspected(suspected(HEALTHY, evidence("1")), evidence("2"))


def released() -> NodeRecord:
    begun = transitions.diagnosing(quarantined(), BY, NOW)
    assert begun is not None
    done = transitions.diagnosed(begun, "", BY, NOW)
    assert done is not None
    return done


def test_one_incident_makes_a_suspect_and_a_second_one_puts_it_into_quarantine():
    suspect = suspected(HEALTHY, evidence("1"))
    assert (suspect.standing, suspect.number, suspect.out_of_service) == (Standing.SUSPECT, 1, False)
    after = suspected(suspect, evidence("2"))
    assert (after.standing, after.was, after.number) == (Standing.QUARANTINED, Standing.SUSPECT, 2)
    assert after.out_of_service and after.who == BY and after.why == "hung in 1; hung in 2"


def test_the_same_incident_counts_once():
    suspect = suspected(HEALTHY, evidence("1"))
    assert transitions.suspected(suspect, [evidence("1")], ALONE, RULES, BY, NOW) is None


def test_severe_evidence_is_enough_by_itself():
    assert suspected(HEALTHY, evidence("1", Weight.SEVERE, "Xid 79")).standing is Standing.QUARANTINED


def test_a_fault_of_the_program_counts_when_two_trainings_had_it_on_the_node():
    first = suspected(
        HEALTHY, evidence("1", Weight.PROGRAM, "Xid 31", by="a"), evidence("2", Weight.PROGRAM, "Xid 31", by="a")
    )
    assert first.standing is Standing.HEALTHY and len(first.evidence) == 2
    assert suspected(first, evidence("3", Weight.PROGRAM, "Xid 13", by="b")).standing is Standing.HEALTHY
    assert suspected(first, evidence("4", Weight.PROGRAM, "Xid 31", by="b")).standing is Standing.QUARANTINED


def test_the_circuit_breaker_keeps_a_third_node_in_service_until_one_is_back():
    full = Surroundings(nodes=3, out_of_service=("node-1", "node-2"))
    suspect = suspected(HEALTHY, evidence("1", Weight.SEVERE), around=full)
    assert (
        suspect.standing is Standing.SUSPECT and "node-1, node-2 are out of service, and at most 2 of 3" in suspect.why
    )
    assert transitions.suspected(suspect, [], full, RULES, BY, NOW) is None, "it is noted once"
    assert suspected(suspect, around=Surroundings(3, ("node-1",))).standing is Standing.QUARANTINED


@pytest.mark.parametrize(("nodes", "limit"), [(1, 0), (2, 1), (3, 2), (20, 2), (32, 3), (100, 10)])
def test_a_tenth_of_the_fleet_may_be_out_of_service_or_two_nodes_but_never_all(nodes: int, limit: int):
    assert RULES.limit(nodes) == limit


def test_an_exempt_node_stays_in_service():
    suspect = suspected(HEALTHY, evidence("1", Weight.SEVERE), around=replace(ALONE, is_exempt=True))
    assert suspect.standing is Standing.SUSPECT and suspect.why.endswith(f"{WITHHELD}it is exempt")


def test_a_suspicion_expires_with_its_window():
    suspect = suspected(HEALTHY, evidence("1"))
    later = NOW + RULES.window_days * DAY + 1
    assert suspected(suspect, now=later).standing is Standing.HEALTHY
    assert suspected(suspect, evidence("2", at=later), now=later).standing is Standing.SUSPECT, (
        "the first counts no more"
    )
    assert suspected(HEALTHY, evidence("1"), now=later) == HEALTHY


def test_a_node_stays_in_quarantine_for_a_while_before_it_is_diagnosed():
    record = quarantined()
    assert not transitions.is_diagnosis_due(record, RULES, NOW + RULES.hold_seconds - 1)
    assert transitions.is_diagnosis_due(record, RULES, NOW + RULES.hold_seconds)


def test_a_diagnosis_whose_process_died_is_due_again():
    begun = transitions.diagnosing(quarantined(), BY, NOW)
    assert begun is not None and transitions.is_diagnosis_due(begun, RULES, NOW)


def test_a_faulty_node_goes_to_repair_and_stays_there():
    begun = transitions.diagnosing(quarantined(), BY, NOW)
    assert begun is not None
    broken = transitions.diagnosed(begun, "disk: Input/output error", BY, NOW)
    assert broken is not None and broken.standing is Standing.REPAIR and broken.out_of_service
    assert not transitions.is_diagnosis_due(broken, RULES, NOW + DAY)
    assert suspected(broken, now=NOW + 100 * DAY) == broken


def test_a_diagnosis_that_could_not_be_made_says_nothing_about_the_node():
    begun = transitions.diagnosing(quarantined(), BY, NOW)
    assert begun is not None
    again = transitions.undiagnosed(begun, "no pod started", BY, NOW)
    assert again is not None and again.standing is Standing.QUARANTINED


def test_what_spoke_against_a_node_before_its_release_counts_no_more():
    probation = released()
    assert transitions.suspected(probation, [evidence("1"), evidence("2")], ALONE, RULES, BY, NOW) is None


def test_on_probation_one_incident_is_enough():
    assert suspected(released(), evidence("3")).standing is Standing.QUARANTINED


def test_runs_without_a_fault_end_the_probation():
    first = transitions.ran_clean(released(), ["tiny-i2"], RULES, BY, NOW)
    assert first is not None and first.standing is Standing.RELEASED
    assert transitions.ran_clean(first, ["tiny-i2"], RULES, BY, NOW) is None, "the same run counts once"
    second = transitions.ran_clean(first, ["tiny-i3"], RULES, BY, NOW)
    assert second is not None and second.standing is Standing.HEALTHY


def test_a_dry_run_records_the_standing_and_leaves_the_node_in_service():
    dry = suspected(HEALTHY, evidence("1", Weight.SEVERE), rules=HealthRules())
    assert dry.standing is Standing.QUARANTINED and not dry.out_of_service
    assert not transitions.is_diagnosis_due(dry, HealthRules(), NOW + DAY)


def test_what_a_person_put_out_of_service_no_process_brings_back():
    record = transitions.by_hand(HEALTHY, Standing.QUARANTINED, "ana", "a new cable", NOW)
    assert record.out_of_service and not transitions.is_diagnosis_due(record, RULES, NOW + DAY)
    assert transitions.diagnosing(record, BY, NOW) is None
    assert suspected(record, evidence("1")).by_hand, "new evidence is noted, and changes nothing"


def test_a_person_releases_a_node_whatever_speaks_against_it():
    back = transitions.by_hand(quarantined(), Standing.RELEASED, "ana", "it was the switch", NOW)
    assert not back.out_of_service and back.why == "it was the switch"
    assert suspected(back, evidence("1"), evidence("2")) == back


@pytest.mark.parametrize("standing", [Standing.HEALTHY, Standing.SUSPECT, Standing.DIAGNOSING])
def test_a_person_cannot_give_a_standing_that_only_a_process_gives(standing: Standing):
    with pytest.raises(ValueError, match="expected quarantined, repair or released"):
        transitions.by_hand(HEALTHY, standing, "ana", "why not", NOW)
