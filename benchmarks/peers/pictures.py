"""Snapshots of pictures to train on: random ones, handwritten digits, or a folder of Parquet files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from slipway.assets.datasets.images import steps
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import images, shards

DIGITS_SIDE = 8
"""Pixels on a side of scikit-learn's digits."""


def random_snapshot(durable: Path, side: int, classes: int, count: int) -> str:
    """Write `count` random pictures in colour; the SHA-256 of the snapshot's manifest."""
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (count, side, side, 3), np.uint8)
    labels = draw.integers(0, classes, count, np.uint32)
    split = images.ImageSplit(count, (images.write_shard(durable, pixels, labels),))
    names = tuple(map(str, range(classes)))
    splits = {"train": split, "validation": split}
    image_snapshot = images.ImageSnapshot("random", "0" * 64, {"kind": "random"}, {}, side, side, 3, names, splits)
    return shards.write_manifest(durable, image_snapshot)


def snapshot(folder: Path, side: int, durable: Path) -> tuple[str, images.ImageSnapshot]:
    """Make a snapshot of the Parquet files in `folder`, a fifth of it held out; its manifest's SHA-256, and itself.

    Grey pictures where they are as small as digits, colour else. Raises ValueError as a dataset's steps do.
    """
    channels = 1 if side == DIGITS_SIDE else 3
    recipe = DatasetRecipe.model_validate(
        {
            "name": "pictures",
            "owner": "team:benchmarks",
            "source": {"kind": "directory", "path": str(folder)},
            "images": {"height": side, "width": side, "channels": channels},
            "split": {"validation": 0.2},
        }
    )
    steps.make_documents(recipe, durable)
    sha256 = str(steps.make_snapshot(recipe, durable).result["sha256"])
    return sha256, images.read_manifest(durable, sha256)


def digits(folder: Path) -> Path:
    """Write scikit-learn's 1,797 handwritten digits, which come with it, as PNGs in a Parquet file."""
    from sklearn.datasets import load_digits

    dataset = load_digits()
    folder.mkdir(parents=True)
    pictures = [_png(pixels) for pixels in (dataset.images * 15).astype(np.uint8)]  # 17 greys, spread over a byte
    pq.write_table(
        pa.table({"image": pictures, "label": dataset.target}), folder / "digits.parquet", row_group_size=100
    )
    return folder


def _png(pixels: images.Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
