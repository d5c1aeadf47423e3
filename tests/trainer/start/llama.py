"""Models in the Hugging Face layout, for tests."""

from pathlib import Path

from torch import Tensor

from trainer.start import huggingface


def load_weights(folder: Path) -> dict[str, Tensor]:
    """A decoder's state, from the model in `folder`."""
    settings = huggingface.read_settings(folder)
    files = {name: (folder / name).read_bytes() for name in huggingface.weight_files(folder)}
    return huggingface.decode_weights(files, settings)
