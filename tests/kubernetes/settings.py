"""The settings of a cluster as a YAML file has them, for tests."""

from pathlib import Path
from typing import Any

import yaml


def settings(durable: Path | str = "/mnt/durable", nvme: Path | str = "/mnt/nvme", **compute: Any) -> dict[str, Any]:
    """The least that a platform says, with these fields of its section `compute` besides."""
    return {
        "slipway": "platform/1",
        "tiers": {"durable": str(durable), "nvme": str(nvme)},
        "tracking": {"uri": "http://mlflow:5000"},
        "compute": {"cluster": {"image": "registry.example/trainer@sha256:0123"}, **compute},
    }


def write(path: Path, value: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    return path
