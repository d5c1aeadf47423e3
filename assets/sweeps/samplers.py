"""The parameters of the next trial of a sweep, by Optuna's samplers.

Optuna is used as a library of pure functions: the study is a projection of the sweep's log, in memory, which a process
that comes later builds again. Each draw has a sampler of its own, seeded by the sweep's seed and the trial's number, so
that what is drawn depends on the log alone, and not on which process draws it. Optuna is imported at its first use,
because the import takes half a second.

    random, quasi-random, grid   of the number alone          tpe, gp, cma-es   of the trials so far, too
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from slipway.assets.sweeps.distributions import Coding
from slipway.assets.sweeps.draws import generator, seed_of
from slipway.assets.sweeps.events import Opened
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.study import SweepStudy
from slipway.recipes.search_space import ContradictorySpace, SearchSpace

if TYPE_CHECKING:
    import optuna

TRIES = 50
"""So many draws of a sampler that do not fit the constraints, and the parameters are drawn at random instead."""
LAST_TRIES = 100_000
"""So many more at random, and the sweep has no further trial; the check of a recipe tries a tenth of these."""
MODELS = ("tpe", "gp", "cma-es")
"""The samplers that learn from the trials so far."""
STRIDE = 4096
"""So many points further along the quasi-random sequence lies the next attempt, where a point does not fit."""


class TrialSampler:
    """Draws parameters, and remembers what it has read of one sweep: what is drawn is a function of the sweep alone."""

    def __init__(self) -> None:
        self._plan: Opened | None = None
        self._grid: list[dict[str, Any]] | None = None

    def parameters(self, sweep: SweepState) -> dict[str, Any] | None:
        """The parameters of the next trial; None when there is no further one: a grid is at its end, or no draw fits
        the constraints. Trial 0 is the recipe as it is written.
        """
        self._read(sweep.plan)
        if sweep.drawn == 0:
            return dict(sweep.plan.written)
        if sweep.plan.sampler == "grid":
            return self._of_the_grid(sweep)
        for attempt in range(TRIES):
            drawn = self._drawn(sweep, attempt)
            if self._space.fits(drawn):
                return drawn
        with contextlib.suppress(ContradictorySpace):
            return self._space.draw(generator(sweep.plan.seed, len(sweep.trials), "constrained"), LAST_TRIES)
        return None

    def _read(self, plan: Opened) -> None:
        if self._plan != plan:
            self._plan = plan
            self._space = SearchSpace.of(plan.space, plan.constraints, plan.fixed)
            self._coding = Coding(self._space)
            self._study = SweepStudy(self._coding, plan)
            self._grid = None

    def _of_the_grid(self, sweep: SweepState) -> dict[str, Any] | None:
        """The combinations in an order that the seed decides, without that of trial 0."""
        if self._grid is None:
            self._grid = [point for point in self._space.grid() if point != sweep.plan.written]
            generator(sweep.plan.seed, "grid").shuffle(self._grid)
        return self._grid[sweep.drawn - 1] if sweep.drawn <= len(self._grid) else None

    def _drawn(self, sweep: SweepState, attempt: int) -> dict[str, Any]:
        import optuna

        seed = seed_of(sweep.plan.seed, len(sweep.trials), *([attempt] if attempt else []))
        with quiet_optuna():
            if sweep.plan.sampler in MODELS:
                return self._study.ask(sweep, seed)
            if sweep.plan.sampler == "quasi-random":
                sampler = _at_point(sweep.drawn - 1 + attempt * STRIDE, sweep.plan.seed, self._coding)
            else:
                sampler = optuna.samplers.RandomSampler(seed=seed)
            return self._coding.drawn(optuna.create_study(sampler=sampler))


def _at_point(point: int, seed: int, coding: Coding) -> "optuna.samplers.BaseSampler":
    """The sampler of one point of the Sobol sequence that the seed scrambles.

    A point has a coordinate for every parameter, whether or not it exists there.
    """
    import optuna

    class AtPoint(optuna.samplers.QMCSampler):  # type: ignore[misc]
        """Optuna counts points and learns the space from the trials before; ours has neither."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return coding.distributions

        def _find_sample_id(self, study: Any, search_space: Any) -> int:
            return point

    return AtPoint(qmc_type="sobol", scramble=True, seed=seed)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """A context in which Optuna neither logs the studies that it makes nor warns of what we use knowingly."""
    import warnings

    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)
