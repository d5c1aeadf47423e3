"""The platform's settings as a YAML file, for tests."""

from pathlib import Path
from typing import Any

import yaml


def settings(durable: Path | str = "/mnt/durable", nvme: Path | str = "/mnt/nvme", **compute: Any) -> dict[str, Any]:
    """The smallest settings, with these further fields in the section `compute`."""
    return {
        "slipway": "platform/1",
        "tiers": {"durable": str(durable), "nvme": str(nvme)},
        "tracking": {"uri": "http://mlflow:5000"},
        "compute": {"cluster": {"image": "registry.example/trainer@sha256:0123"}, **compute},
    }


def write(path: Path, value: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(value, sort_keys=False))
    return path
