"""Optuna's study of a sweep: a projection of the sweep's log in memory, which follows the sweep and is never stored.

Its trials are those of the sweep, in the order of asking, so a study that followed the sweep from its first event and
one that is built from a later state are equal for the samplers. CMA-ES keeps what it has learned with the trials that
it drew: there a study that is built later draws each of them again, after the same others were over.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipway.assets.sweeps.distributions import Coding
from slipway.assets.sweeps.draws import seed_of
from slipway.assets.sweeps.events import Opened
from slipway.assets.sweeps.state import SweepState, Trial, TrialObservation

if TYPE_CHECKING:
    import optuna

STARTUP = 5
"""Finished trials before a model of them draws; with Optuna's default of 10, small sweeps would be random."""


@dataclass
class _Mirrored:
    """A trial of the sweep that the study has."""

    trial: Trial
    number: int | None
    """Its number in the study; None for one outside the space, which no sampler can learn from."""
    over: TrialObservation | None = None
    """The outcome that the study was given."""


class SweepStudy:
    """The study of one sweep."""

    def __init__(self, coding: Coding, plan: Opened) -> None:
        self._coding, self._plan = coding, plan
        self._study: optuna.Study | None = None
        self._mirrored: list[_Mirrored] = []
        self._told_numbers: list[int] = []
        self._asked_last: tuple[int, dict[str, Any]] | None = None

    def ask(self, sweep: SweepState, seed: int) -> dict[str, Any]:
        """Parameters for the next trial: a function of the sweep and the seed."""
        follows = self._study is not None and self._follow(sweep)
        if not follows or (self._plan.sampler == "cma-es" and self._asked_last is not None):
            self._begin()  # what CMA-ES draws depends on the number in the study: one that was not taken has none
            followed = self._follow(sweep)
            assert followed, "a study that is built from a sweep follows it"
        return self._drawn(seed)

    def _begin(self) -> None:
        import optuna

        self._study = optuna.create_study()
        self._mirrored, self._told_numbers, self._asked_last = [], [], None

    @property
    def _begun(self) -> "optuna.Study":
        assert self._study is not None, "a study is begun before it follows a sweep"
        return self._study

    def _drawn(self, seed: int) -> dict[str, Any]:
        self._drop_last()
        self._begun.sampler = self._sampler(seed)
        trial = self._begun.ask()
        parameters = self._coding.drawn_by(trial)
        self._asked_last = (trial.number, parameters)
        return parameters

    def _drop_last(self) -> None:
        """What was drawn and not taken, because it did not fit the constraints, teaches nothing."""
        import optuna

        if self._asked_last is not None:
            self._begun.tell(self._asked_last[0], state=optuna.trial.TrialState.FAIL)
            self._asked_last = None

    def _follow(self, sweep: SweepState) -> bool:
        """Take in what is new. False for a sweep that does not continue what the study has."""
        if len(self._mirrored) > len(sweep.trials) or self._told_numbers != list(sweep.over[: len(self._told_numbers)]):
            return False
        for mirrored in self._mirrored:
            now = sweep.trials[mirrored.trial.number]
            if now is not mirrored.trial:
                changed = mirrored.over is not None and sweep.observation(now) != mirrored.over
                if changed or now.parameters != mirrored.trial.parameters:
                    return False
                mirrored.trial = now
        for number in range(len(self._mirrored), len(sweep.trials)):
            trial = sweep.trials[number]
            self._tell(sweep, trial.drawn_after)
            self._mirrored.append(_Mirrored(trial, self._added(trial)))
        self._tell(sweep, len(sweep.over))
        return True

    def _added(self, trial: Trial) -> int | None:
        """Add a trial to the study, as it was drawn; its number there."""
        import optuna

        coded = self._coding.coded(trial.parameters)
        if coded is None:
            return None
        drawn = trial.parent is None and trial.number > 0
        if self._asked_last is None and self._plan.sampler == "cma-es" and drawn:
            self._drawn(seed_of(self._plan.seed, trial.number))
        if self._asked_last is not None and self._asked_last[1] == trial.parameters:
            number, self._asked_last = self._asked_last[0], None
            return number
        self._drop_last()
        running = optuna.trial.TrialState.RUNNING
        domains = {name: self._coding.distributions[name] for name in coded}
        self._begun.add_trial(optuna.trial.create_trial(state=running, params=coded, distributions=domains))
        return len(self._begun.get_trials(deepcopy=False)) - 1

    def _tell(self, sweep: SweepState, over: int) -> None:
        """Tell the study of the first `over` trials that were over."""
        for number in sweep.over[len(self._told_numbers) : over]:
            mirrored = self._mirrored[number]
            mirrored.over = sweep.observation(sweep.trials[number])
            if mirrored.number is not None:
                self._tell_one(mirrored.number, mirrored.over)
            self._told_numbers.append(number)

    def _tell_one(self, number: int, observed: TrialObservation) -> None:
        """Complete trials rank by value; stopped ones after them, by how far they came, and failed ones last.

        A Gaussian process knows complete trials alone: to it, a stopped trial has the value that it was stopped with.
        """
        import optuna

        if observed.value is not None and (observed.stopped_at is None or self._plan.sampler == "gp"):
            self._begun.tell(number, observed.value)
            return
        if observed.value is not None and observed.stopped_at is not None:
            trial_id = self._begun.get_trials(deepcopy=False)[number]._trial_id
            optuna.trial.Trial(self._begun, trial_id).report(observed.value, observed.stopped_at)
        worst = optuna.trial.TrialState.FAIL if self._plan.sampler == "gp" else optuna.trial.TrialState.PRUNED
        self._begun.tell(number, state=worst)

    def _sampler(self, seed: int) -> "optuna.samplers.BaseSampler":
        """TPE is the multivariate tree-structured Parzen estimator (Bergstra et al. 2011, Falkner et al. 2018). It
        counts running trials among the bad ones to keep away from them (the constant liar); the Gaussian process
        expects of them what it predicts; the evolution strategy draws generations, whose trials run together."""
        from optuna import samplers

        match self._plan.sampler:
            case "tpe":
                return samplers.TPESampler(
                    seed=seed, n_startup_trials=STARTUP, multivariate=True, group=True, constant_liar=True
                )
            case "gp":
                return samplers.GPSampler(seed=seed, n_startup_trials=STARTUP)
        return samplers.CmaEsSampler(seed=seed, consider_pruned_trials=True)
