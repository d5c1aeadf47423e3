"""Draws the parameters of the next trial of a sweep with Optuna's samplers.

Optuna serves as a library of pure functions: the study is a projection of the sweep's log in memory, which a later
process rebuilds. Each draw has a sampler of its own, seeded by the sweep's seed and the trial's number, so a draw
depends only on the log, and not on the process. Optuna is imported at its first use, because the import takes half a
second.

    random, quasi-random, grid   depend on the number         tpe, gp, cma-es   also on the trials so far
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
"""The number of draws from the sampler that may miss the constraints, before parameters are drawn at random."""
LAST_TRIES = 100_000
"""The number of random draws after that, before the sweep has no further trial. The check of a recipe tries a tenth of
these."""
MODELS = ("tpe", "gp", "cma-es")
"""The samplers that learn from the trials so far."""
STRIDE = 4096
"""The distance along the quasi-random sequence to the next attempt, if a point does not fit."""


class TrialSampler:
    """Draws parameters and caches what it has read of one sweep; a draw depends only on the sweep."""

    def __init__(self) -> None:
        self._plan: Opened | None = None
        self._grid: list[dict[str, Any]] | None = None

    def parameters(self, sweep: SweepState) -> dict[str, Any] | None:
        """The parameters of the next trial; None if a grid is exhausted, or no draw fits the constraints.

        Trial 0 is the recipe as it is written.
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
        """The next combination of the grid, in an order that the seed decides, without that of trial 0."""
        if self._grid is None:
            self._grid = [point for point in self._space.grid() if point != sweep.plan.written]
            generator(sweep.plan.seed, "grid").shuffle(self._grid)
        if sweep.drawn <= len(self._grid):
            return self._grid[sweep.drawn - 1]
        return None

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
    """The sampler for one point of the Sobol sequence, which the seed scrambles.

    A point has a coordinate for every parameter, even if the parameter does not exist there.
    """
    import optuna

    class AtPoint(optuna.samplers.QMCSampler):  # type: ignore[misc]
        """Optuna's sampler counts points and learns the space from earlier trials; this one gets both."""

        def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
            return coding.distributions

        def _find_sample_id(self, study: Any, search_space: Any) -> int:
            return point

    return AtPoint(qmc_type="sobol", scramble=True, seed=seed)


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """A context in which Optuna does not log its studies and does not warn about experimental features."""
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
