"""The contents of a snapshot that a model must know; a model that reads something else is refused."""

from slipway.trainer.base.invalid import Invalid, require
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.data import images
from slipway.trainer.data.shards import TokenizerRecord
from slipway.trainer.data.snapshots import Snapshot


def data(snapshot: Snapshot, shape: Shape, length: int, seed: int = 0) -> Data:
    """The sizes of the data for a model of this shape; `length`: the tokens of a sequence, 0 for pictures.

    Raises ValueError, with the configuration's field, for a model that does not fit the snapshot.
    """
    if isinstance(snapshot, images.ImageSnapshot):
        description = Data(length=length, picture=snapshot.shape, classes=len(snapshot.classes), seed=seed)
    else:
        description = Data(vocabulary=snapshot.tokenizer.vocab_size, length=length, seed=seed)
    try:
        check(shape, description)
    except Invalid as fault:
        section, _, field = fault.field.partition(".")
        value = getattr(shape, field) if section == "model" else length
        raise ValueError(f"{fault.field}: found {value!r}, {fault}, for snapshot {snapshot.sha256[:16]}") from None
    return description


def check(shape: Shape, data: Data) -> None:
    """Raises Invalid, with the configuration's field, for a model that cannot be trained on such data."""
    holds = "pictures" if any(data.picture) else "tokens"
    message = f"expected a model that reads {holds}, as the dataset holds: this one reads {shape.reads}"
    require(shape.reads == holds, "model.kind", message)
    require(holds == "pictures" or data.length > 0, "batch.length", "expected a number above 0: tokens a sequence")
    require(holds == "tokens" or data.length == 0, "batch.length", "expected 0, as the dataset holds pictures")
    try:
        shape.check(data)
    except Invalid as fault:
        raise Invalid(f"model.{fault.field}", str(fault)) from None


def tokenizer(snapshot: Snapshot) -> TokenizerRecord | None:
    """The snapshot's tokenizer; None for pictures."""
    return None if isinstance(snapshot, images.ImageSnapshot) else snapshot.tokenizer


def tokenizer_digest(snapshot: Snapshot) -> str:
    """SHA-256 of the snapshot's tokenizer; empty for pictures."""
    text_tokenizer = tokenizer(snapshot)
    return text_tokenizer.sha256 if text_tokenizer else ""
