"""Models in the Hugging Face layout, for tests."""

from pathlib import Path

from torch import Tensor

from slipway.trainer.start import huggingface


def load_weights(folder: Path) -> dict[str, Tensor]:
    """A decoder's state, from the model in `folder`."""
    return huggingface.StoredWeights(folder, huggingface.read_settings(folder)).state()
