"""What Dagster shows of a training that runs: figures that a person can read."""

from slipway.assets import status_observation
from slipway.resources.trainings.status import TrainingStatus


def test_figures_have_six_digits_and_stay_numbers():
    figures = (("tokens_per_second", 2930.0103925229137), ("learning_rate", 0.0010559120987844606))
    stands = TrainingStatus("running", "running", 9, 10, 8, 1, ("node-0",), 1.0, 4.038294792175293, None, 8, figures)
    metadata = status_observation.metadata("tiny-0", "tiny", stands)
    assert metadata["loss"] == 4.03829 and "best_loss" not in metadata
    assert (metadata["tokens_per_second"], metadata["learning_rate"]) == (2930.01, 0.00105591)
