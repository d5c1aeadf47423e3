"""The handwritten digits of scikit-learn as a snapshot, and trainings on them as real processes."""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from slipway.trainer.data import images, shards

HELD_OUT = 360
"""Every fifth digit: no digit is trained on that a model is measured on."""
RESNET: dict[str, Any] = {"kind": "resnet", "blocks": [1, 1], "width": 8, "stem": "small"}
VIT: dict[str, Any] = {"kind": "vit", "layers": 2, "width": 32, "heads": 4, "hidden": 64, "patch": 2}


def make_digits(durable: Path) -> images.ImageSnapshot:
    """1,797 grey pictures of 8 x 8 pixels, their 17 greys spread over a byte, in four shards and one held out."""
    dataset = load_digits()
    pixels, labels = (dataset.images * 15).astype(np.uint8)[..., None], dataset.target.astype(np.uint32)
    numbers = np.arange(len(labels))
    train, held_out = numbers[numbers % 5 != 0], numbers[numbers % 5 == 0]

    def split(*parts: Any) -> images.ImageSplit:
        written = [images.write_shard(durable, pixels[part], labels[part]) for part in parts]
        return images.ImageSplit(sum(map(len, parts)), tuple(written))

    snapshot = images.ImageSnapshot(
        dataset="digits",
        recipe="0" * 64,
        source={"kind": "scikit-learn"},
        documents={},
        height=8,
        width=8,
        channels=1,
        classes=tuple("0123456789"),
        splits={"train": split(*np.array_split(train, 4)), "validation": split(held_out)},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def sections(model: dict[str, Any], **changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A training on digits: 60 steps of 64 pictures."""
    defaults: dict[str, dict[str, Any]] = {
        "model": model,
        "batch": {"sequences": 64, "length": 0, "micro": 64},
        "optimizer": {"learning_rate": 0.003, "warmup_steps": 5, "weight_decay": 0.01},
        "run": {"steps": 60},
        "checkpoint": {"every": 30},
        "validation": {"every": 60, "sequences": HELD_OUT},
    }
    return {name: {**section, **changed.get(name, {})} for name, section in defaults.items()}
