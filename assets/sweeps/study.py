"""Optuna's study of a sweep: a projection of the sweep's log in memory, which follows the sweep and is never stored.

Its trials are those of the sweep, in the same order, so to the samplers it makes no difference whether a study has
followed the sweep from its first event or was built from a later state. CMA-ES stores what it has learned in the trials
that it drew, so for it a study that is built later draws each of them again, after the same other trials were over.
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
"""Finished trials before a model draws; with Optuna's default of 10, small sweeps would be random."""


@dataclass
class _Mirrored:
    """A trial of the sweep in the study."""

    trial: Trial
    number: int | None
    """The number in the study; None for a trial outside the space, from which no sampler can learn."""
    over: TrialObservation | None = None
    """The outcome that the study knows."""


class SweepStudy:
    """The study of one sweep."""

    def __init__(self, coding: Coding, plan: Opened) -> None:
        self._coding = coding
        self._plan = plan
        self._study: optuna.Study | None = None
        self._mirrored: list[_Mirrored] = []
        self._told_numbers: list[int] = []
        self._asked_last: tuple[int, dict[str, Any]] | None = None

    def ask(self, sweep: SweepState, seed: int) -> dict[str, Any]:
        """Parameters for the next trial: a function of the sweep and the seed."""
        follows = self._study is not None and self._follow(sweep)
        if not follows or (self._plan.sampler == "cma-es" and self._asked_last is not None):
            self._begin()  # CMA-ES's draws depend on the number in the study, so a discarded draw must not count
            followed = self._follow(sweep)
            assert followed, "a study that is built from a sweep follows it"
        return self._drawn(seed)

    def _begin(self) -> None:
        import optuna

        self._study = optuna.create_study()
        self._mirrored = []
        self._told_numbers = []
        self._asked_last = None

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
        """Remove a draw that did not fit the constraints, so that the sampler does not learn from it."""
        import optuna

        if self._asked_last is not None:
            self._begun.tell(self._asked_last[0], state=optuna.trial.TrialState.FAIL)
            self._asked_last = None

    def _follow(self, sweep: SweepState) -> bool:
        """Add the sweep's news to the study. False if the sweep does not continue the study's trials."""
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
        """Add a trial to the study in the way it was drawn; returns its number there."""
        import optuna

        coded = self._coding.coded(trial.parameters)
        if coded is None:
            return None
        drawn = trial.parent is None and trial.number > 0
        if self._asked_last is None and self._plan.sampler == "cma-es" and drawn:
            self._drawn(seed_of(self._plan.seed, trial.number))
        if self._asked_last is not None and self._asked_last[1] == trial.parameters:
            number = self._asked_last[0]
            self._asked_last = None
            return number
        self._drop_last()
        running = optuna.trial.TrialState.RUNNING
        domains = {name: self._coding.distributions[name] for name in coded}
        self._begun.add_trial(optuna.trial.create_trial(state=running, params=coded, distributions=domains))
        return len(self._begun.get_trials(deepcopy=False)) - 1

    def _tell(self, sweep: SweepState, over: int) -> None:
        """Tell the study the outcomes of the first `over` finished trials."""
        for number in sweep.over[len(self._told_numbers) : over]:
            mirrored = self._mirrored[number]
            mirrored.over = sweep.observation(sweep.trials[number])
            if mirrored.number is not None:
                self._tell_one(mirrored.number, mirrored.over)
            self._told_numbers.append(number)

    def _tell_one(self, number: int, observed: TrialObservation) -> None:
        """Tell the study an outcome: complete trials rank by value, then stopped trials by their steps, then failed
        ones.

        A Gaussian process accepts only complete trials, so a stopped trial counts as complete with its last value.
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
