"""Learning curves with known ends, an executor of them in simulated time, and other engines' schedulers driven by it.

``python benchmarks/peers/sweep.py ENGINE TRIALS WORKERS SEEDS`` prints a JSON list with an outcome a seed. Engines:
none, optuna-halving, optuna-hyperband, optuna-median, ray-halving. Nothing of Slipway is imported, so that it runs in
an environment of the peer's own.

The curves (PL4): four parameters, a + b t^-c with crossings, divergence at a high rate, and noise that a seed decides;
T = 81 epochs, eta = 3. All engines see the same trials, with the same speeds, in the same order.
"""

import heapq
import json
import math
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

EPOCHS, ETA = 81, 3
RUNGS = (1, 3, 9, 27, 81)


@dataclass(frozen=True)
class LearningCurve:
    """The losses of one trial."""

    end: float
    """a: what it tends to."""
    fall: float
    speed: float
    sigma: float
    seed: str
    pace: float
    """Simulated minutes of an epoch."""

    def clean(self, epoch: int) -> float:
        """The loss without noise."""
        return float(self.end + self.fall * epoch**-self.speed)

    def loss(self, epoch: int) -> float:
        """The loss that is reported."""
        return self.clean(epoch) + self.sigma * random.Random(f"{self.seed}:{epoch}").gauss(0, 1)


def curve(seed: int, number: int) -> LearningCurve:
    """The curve of trial `number` of a pool: rate, decay, momentum and width are drawn, and decide a, b and c."""
    draw = random.Random(f"{seed}:{number}")
    rate, decay = 10 ** draw.uniform(-4, 0), 10 ** draw.uniform(-6, -2)
    momentum, width = draw.uniform(0.8, 0.99), draw.choice([128, 256, 512, 1024])
    pace = math.exp(draw.gauss(0, 0.1))
    if rate > 0.5:  # diverges
        return LearningCurve(5.0, 0.0, 1.0, 0.01, f"{seed}:{number}", pace)
    distance = math.log10(rate) + 2
    bowl = 0.12 * distance**2 + 0.02 * (math.log10(decay) + 4) ** 2 + 2.0 * (momentum - 0.92) ** 2
    end = 0.30 + bowl + 0.02 * abs(math.log2(width / 512))
    fall = 1.2 + 0.3 * math.log2(width / 128) / 3  # wide ones begin higher
    speed = 0.55 + 0.12 * distance - 0.1 * math.log2(width / 128) / 3  # and low rates fall slowly
    return LearningCurve(end, fall, max(speed, 0.15), 0.004, f"{seed}:{number}", pace)


@dataclass(frozen=True)
class SearchOutcome:
    """What a search cost and gave."""

    saved: float
    """1 - epochs trained / all epochs."""
    regret: float
    """The final noise-free loss of what is handed over, less that of the best trial of the same pool."""
    makespan: float
    """Simulated minutes."""


def outcome(seed: int, trials: int, reached: dict[int, int], makespan: float) -> SearchOutcome:
    """Handed over is the trial with the lowest reported loss among those with the most training."""
    most = max(reached.values())
    handed = min((number for number in reached if reached[number] == most), key=lambda n: curve(seed, n).loss(most))
    best = min(curve(seed, number).clean(EPOCHS) for number in range(trials))
    saved = 1 - sum(reached.values()) / (trials * EPOCHS)
    return SearchOutcome(saved, curve(seed, handed).clean(EPOCHS) - best, makespan)


def execute(seed: int, trials: int, workers: int, goes_on: Callable[[int, int, float], bool]) -> SearchOutcome:
    """Run a pool on workers; `goes_on(trial, epoch, loss)` is asked after each epoch but a trial's last."""
    curves = [curve(seed, number) for number in range(trials)]
    reached = dict.fromkeys(range(trials), 0)
    queue = [(curves[number].pace, number) for number in range(min(workers, trials))]
    heapq.heapify(queue)
    following, now = len(queue), 0.0
    while queue:
        now, number = heapq.heappop(queue)
        reached[number] += 1
        epoch = reached[number]
        if goes_on(number, epoch, curves[number].loss(epoch)) and epoch < EPOCHS:
            heapq.heappush(queue, (now + curves[number].pace, number))
        elif following < trials:
            heapq.heappush(queue, (now + curves[following].pace, following))
            following += 1
    return outcome(seed, trials, reached, now)


def optuna_engine(kind: str, seed: int) -> Callable[[int, int, float], bool]:
    """Optuna's own pruner, asked through its own trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = {
        "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(1, EPOCHS, ETA),
        "median": lambda: optuna.pruners.MedianPruner(),
    }[kind]()
    study = optuna.create_study(study_name=f"curves-{seed}", pruner=pruner)
    running: dict[int, optuna.Trial] = {}

    def goes_on(number: int, epoch: int, loss: float) -> bool:
        trial = running.get(number) or running.setdefault(number, study.ask())
        trial.report(loss, epoch)
        if epoch == EPOCHS:
            study.tell(trial, loss)
        elif trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return False
        return True

    return goes_on


def ray_engine(seed: int) -> Callable[[int, int, float], bool]:
    """Ray's own scheduler, which takes trials by their ids alone."""
    from ray.tune.schedulers import AsyncHyperBandScheduler  # type: ignore[import-not-found]

    scheduler = AsyncHyperBandScheduler("training_iteration", "loss", "min", EPOCHS, 1, ETA)

    class Named:
        def __init__(self, number: int) -> None:
            self.trial_id = str(number)

    known: dict[int, Named] = {}

    def goes_on(number: int, epoch: int, loss: float) -> bool:
        if number not in known:
            known[number] = Named(number)
            scheduler.on_trial_add(None, known[number])
        decision = scheduler.on_trial_result(None, known[number], {"training_iteration": epoch, "loss": loss})
        return bool(decision == "CONTINUE")

    return goes_on


def engine(name: str, seed: int) -> Callable[[int, int, float], bool]:
    """The engine of this name, at its beginning."""
    if name == "none":
        return lambda number, epoch, loss: True
    return ray_engine(seed) if name == "ray-halving" else optuna_engine(name.removeprefix("optuna-"), seed)


def main(name: str, trials: int, workers: int, seeds: Iterable[int]) -> None:
    results = [execute(seed, trials, workers, engine(name, seed)) for seed in seeds]
    print(json.dumps([asdict(result) for result in results]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), range(int(sys.argv[4])))
