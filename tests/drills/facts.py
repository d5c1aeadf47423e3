"""Facts of a training, from its ledger."""

from slipway.resources.trainings.store import TrainingStore


def steps(training: TrainingStore) -> list[int]:
    """Every step that was done, in the order of doing; one that was done again is there again."""
    return [event["step"] for event in training.events() if event["event"] == "step"]


def steps_of(training: TrainingStore, incarnation: int) -> list[int]:
    """The steps that one incarnation did."""
    return [
        event["step"] for event in training.events() if event["event"] == "step" and event["incarnation"] == incarnation
    ]


def restored_from(training: TrainingStore, incarnation: int) -> int | None:
    """The step at which the incarnation went on; None when it has not restored anything."""
    events = [event for event in training.events() if event["incarnation"] == incarnation]
    return next((event["step"] for event in events if event["event"] == "restored"), None)


def causes(training: TrainingStore) -> list[str]:
    """Why each incarnation was claimed, the first one first."""
    return [event["cause"] for event in training.events() if event["event"] == "claimed"]
