"""The runbook's table of faults: each fault is there, with its cause and where it can be done."""

from pathlib import Path

from slipway.operations.chaos.faults import FAULTS, possible, usual

RUNBOOK = Path(__file__).parents[3] / "docs" / "runbook.md"


def test_the_runbook_has_each_fault_with_its_cause_and_its_place():
    rows = [line.split(" | ") for line in RUNBOOK.read_text().splitlines() if line.startswith("| `")]
    entries = {row[0].strip("| `"): row[1:] for row in rows if len(row) == 5}
    assert set(entries) >= set(FAULTS)
    for name, fault in FAULTS.items():
        what, kinds, embedded, cluster = entries[name]
        assert what == fault.what
        assert kinds == (" or ".join(f"`{kind}`" for kind in fault.kinds) or "none")
        assert (embedded == "yes", cluster.startswith("yes")) == (fault.act is not None, fault.on_cluster is not None)


def test_what_no_training_survives_is_done_only_when_it_is_named():
    assert "gradients-never-finite" not in usual() and "gradients-never-finite" in possible(on_cluster=False)
