"""The Hugging Face layout: a folder with config.json and the weights in one or several safetensors files.

`slipway.trainer.start.families` has the names and the settings of each kind of model. Settings and tensors that our
models do not have are errors, which name them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import parsing, regular_file
from slipway.trainer.base.invalid import require
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.start.families import table
from slipway.trainer.start.families.entries import Settings, WeightEntry

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
MAX_EXAMPLES = 8
"""The most tensors of each fault that a message names."""


def config_of(model: DecoderShape, data: Data, dtype: str, end_of_document: int | None) -> dict[str, Any]:
    """The value of config.json. Raises ValueError for a decoder that transformers does not have.

    `data` has the vocabulary and the longest sequence of the training, in tokens; `dtype` is float32 or bfloat16.
    """
    return {
        **table.config(model, data),
        "vocab_size": data.vocabulary,
        "tie_word_embeddings": model.tied,
        "torch_dtype": dtype,
        # Without these two keys, readers use the ids of the published model.
        "bos_token_id": None,
        "eos_token_id": end_of_document,
    }


def read_settings(folder: Path) -> Settings:
    """The settings of the model in `folder`.

    Raises ValueError if there is no model, and for settings that our models do not have.
    """
    path = folder / CONFIG
    try:
        value = parsing.value(regular_file.read(path))
        require(isinstance(value, dict), "", f"found {str(value)[:80]}, expected a section")
        return table.named(value.get("model_type")).read(value)
    except FileNotFoundError:
        raise ValueError(f"{folder}: found no {CONFIG}, expected a model in the Hugging Face layout") from None
    except KeyError as error:
        kind = value["model_type"]
        raise ValueError(f"{path}: found no {error.args[0]}, expected the settings of a model {kind}") from None
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"{path}: {error}") from None


def files_of_model(folder: Path) -> list[str]:
    """The names of the settings and weight files. Raises ValueError if there are no weights."""
    return [CONFIG, *weight_files(folder)]


def weight_files(folder: Path) -> list[str]:
    """The names of the weight files: a single one, or those in the index.

    Raises ValueError if there is neither, and LackingTier if there is no folder: its tier may not be mounted.
    """
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    try:
        file_by_tensor = parsing.value(regular_file.read(folder / INDEX))["weight_map"]
        names = {Path(name).name for name in file_by_tensor.values()}
        outside = names & {"", ".", ".."} or {name for name in names if "\0" in name}
        require(not outside, "weight_map", f"found {outside}, expected names of files")
        return sorted(names)
    except FileNotFoundError:
        fault = ValueError if folder.is_dir() else LackingTier
        raise fault(f"{folder}: found neither {WEIGHTS} nor {INDEX}, expected one of them") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{folder / INDEX}: expected JSON whose weight_map has the file of each tensor") from None


class StoredWeights:
    """The tensors of a model's folder, by the names of its family; they are read one at a time.

    The constructor reads only the headers of the files. Raises ValueError for a file that is no safetensors.
    """

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        self.settings = settings
        self._family = table.named(settings.kind)
        self._file_and_name: dict[str, tuple[Path, str]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in (folder / name for name in weight_files(folder)):
            for name, shape in _shapes(path).items():
                self._file_and_name[self._family.standard(name)] = path, name
                self._shapes[self._family.standard(name)] = shape

    @property
    def entries(self) -> list[WeightEntry]:
        """The place of each of our tensors."""
        return self._family.entries(self.settings)

    @property
    def is_computed(self) -> bool:
        """Whether some of our tensors are computed from others, so that only `state` has them."""
        return self._family.finish is not None

    def check(self) -> None:
        """Raises ValueError with the tensors that are missing, too many or of another shape, and a remedy."""
        counted = [name for name in self._shapes if not self._family.leaves_out(name)]
        faults = _faults(self._shapes, self.entries, counted)
        if faults:
            raise ValueError(f"{self.folder}: {'; '.join(faults)}")

    def read(self, entry: WeightEntry, offsets: Sequence[int] = (), sizes: Sequence[int] = ()) -> "Tensor":
        """A box of one of our tensors, by default all of it, in the stored type. It reads no other tensor.

        It opens the file for this tensor alone, because mapped pages count as memory of this process.
        """
        import safetensors

        path, name = self._file_and_name[entry.hf_name]
        with safetensors.safe_open(path, "pt") as file:
            stored: Any = file.get_slice(name)
            return entry.read(stored if entry.shape else stored[...], offsets, sizes)

    def state(self) -> "dict[str, Tensor]":
        """The whole state of our model in fp32; if they are tied, the embedding is also the head."""
        self.check()
        tensors = {entry.name: self.read(entry).float().contiguous() for entry in self.entries}
        if self._family.finish is None:
            return tensors
        return self._family.finish(tensors, self.folder)


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors of a safetensors file, by name. Raises ValueError for any other file."""
    import safetensors

    try:
        with safetensors.safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: expected a safetensors file: {error}") from None


def _faults(actual: Mapping[str, tuple[int, ...]], entries: Iterable[WeightEntry], counted: Iterable[str]) -> list[str]:
    """The faults of a model's tensors, each kind with a remedy; each name in `counted` must belong to our model."""
    stored = {entry.hf_name: entry.stored for entry in entries}
    missing = [f"{name}: found no such tensor, expected one of {list(stored[name])}" for name in stored.keys() - actual]
    other = [
        f"{name}: found {list(actual[name])}, expected {list(shape)}"
        for name, shape in stored.items()
        if name in actual and actual[name] != shape
    ]
    more = [f"{name}: found a tensor of {list(actual[name])} that our model does not have" for name in counted]
    more = [fault for fault, name in zip(more, counted, strict=True) if name not in stored]
    faults = [
        (missing, "missing", f"fetch all files again, or set the sizes in {CONFIG} to those of the files"),
        (more, "too many", f"set the sizes in {CONFIG} to those of the files, or remove these from the files"),
        (other, "of another shape", f"set the sizes in {CONFIG}, from which the expected shapes follow"),
    ]
    return [
        f"{_count(fault_list)} {what}: {_list(fault_list)}: {remedy}"
        for fault_list, what, remedy in faults
        if fault_list
    ]


def _count(faults: Sequence[str]) -> str:
    return f"{len(faults)} tensor{'s' if len(faults) > 1 else ''}"


def _list(faults: Sequence[str]) -> str:
    examples = sorted(faults)[:MAX_EXAMPLES]
    rest = len(faults) - len(examples)
    if rest:
        examples.append(f"and {rest} more")
    return ", ".join(examples)
