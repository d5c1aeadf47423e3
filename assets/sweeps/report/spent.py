"""The compute of a sweep, from the times in its log: how long its trials held their ranks."""

from collections.abc import Iterable

from slipway.assets.sweeps.events import Asked, Ended, Event, Paused, Started


def rank_seconds(log: Iterable[Event], ranks_per_node: int) -> dict[int, float]:
    """Seconds that each trial held its ranks, times the ranks: from each start of its job to its pause or its end.

    Starting counts, because a rank that starts is a GPU that is taken. What has not ended counts up to the last event
    of the log. A trial that was never started has 0.
    """
    spent: dict[int, float] = {}
    running: dict[int, tuple[float, int]] = {}
    last = 0.0
    for event in log:
        last = max(last, event.at)
        match event:
            case Asked(trial=trial):
                spent.setdefault(trial, 0.0)
            case Started(trial=trial, nodes=nodes, at=at):
                running.setdefault(trial, (at, len(nodes) * ranks_per_node))  # logged again when it was adopted
            case Paused(trial=trial) | Ended(trial=trial) if trial in running:
                _add(spent, trial, running.pop(trial), event.at)
            case _:
                pass
    for trial, held in running.items():
        _add(spent, trial, held, last)
    return spent


def _add(spent: dict[int, float], trial: int, held: tuple[float, int], until: float) -> None:
    since, ranks = held
    spent[trial] = spent.get(trial, 0.0) + max(0.0, until - since) * ranks
