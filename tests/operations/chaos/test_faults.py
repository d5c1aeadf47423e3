"""Every fault of `slipway chaos`, done for real to one training: each gets its cause, and the training goes on.

In the end the training has learned what one without faults learns.
"""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean

import pytest

from slipway.operations.chaos.faults import FAULTS, usual
from tests.conftest import MARK, Marked, until
from tests.operations.chaos.stand import Stand

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

IN_VALUES = ("gradients-not-finite", "loss-spike", "weights-flipped")
"""After these the numbers are others: a batch was left out, or a wrong update was made."""
DAILY = ("rank-killed", "disk-full", "gradients-not-finite")
"""The rest is for the night."""
OF_THE_INSTANCE = ("control-plane-stopped", "tracking-away", "object-store-away")
"""There is no Dagster and no MLflow here: `benchmarks.chaos --each` has them; `test_away.py` has the store."""
LAST, TOLERANCE = 50, 0.02
"""Between the mean losses of the last steps, which fewer ranks computed for a while: sums in another order, and what
follows from that in a thousand steps."""


@pytest.fixture(scope="module")
def mark() -> Iterator[Marked]:
    """Marks all processes; after the tests none is left."""
    with pytest.MonkeyPatch.context() as patch:
        mark = {MARK: uuid.uuid4().hex}
        patch.setenv(MARK, mark[MARK])
        patch.setenv("OMP_NUM_THREADS", "1")
        yield Marked(mark)
        Marked(mark).must_be_gone()


@pytest.fixture(scope="module")
def stand(mark: Marked, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """A training that runs through all the tests of this file."""
    stand = Stand(tmp_path_factory.mktemp("faults"))
    with stand.ticking():
        yield stand


def parametrized_by_name(names: Iterable[str]) -> pytest.MarkDecorator:
    nightly = {name: () if name in DAILY else pytest.mark.nightly for name in names}
    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in nightly.items()])


def gets_its_cause_and_goes_on(stand: Stand, name: str) -> None:
    [result] = stand.bring(name).results
    assert result.right, f"{result.injection.what}: {result.incident}, expected one of {FAULTS[name].kinds}"
    stand.goes_on()


@parametrized_by_name(name for name in usual() if name not in (*IN_VALUES, *OF_THE_INSTANCE))
def test_a_fault_gets_its_cause_and_the_training_goes_on(stand: Stand, name: str) -> None:
    gets_its_cause_and_goes_on(stand, name)


@pytest.mark.nightly
def test_after_all_these_faults_the_training_has_learned_what_one_without_faults_learns(
    stand: Stand, mark: Marked, tmp_path: Path
) -> None:
    last, undisturbed = stand.step, Stand(tmp_path)
    with undisturbed.ticking():
        until(lambda: undisturbed.step >= last, "the undisturbed training to do as many steps")
    disturbed_losses, calm_losses = stand.losses(), undisturbed.losses()
    assert sorted(disturbed_losses)[:last] == list(range(1, last + 1)), "no step was left out"
    compared = range(last - LAST, last)
    assert fmean(disturbed_losses[step] for step in compared) == pytest.approx(
        fmean(calm_losses[step] for step in compared), abs=TOLERANCE
    )


@parametrized_by_name(IN_VALUES)
def test_a_fault_in_values_gets_its_cause_and_the_training_goes_on(stand: Stand, name: str) -> None:
    gets_its_cause_and_goes_on(stand, name)
