"""Runtime information: the environment of a process's code: its packages, kernel, driver, libraries and image.

It is read once in a process. It uses torch only if that is imported already: a script may train without it.
"""

import functools
import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import atomic, digest
from slipway.trainer.config.resolved import Config
from slipway.trainer.node import affinity, fabric, settings

if TYPE_CHECKING:
    from slipway.trainer.node.world import World

REVISION = "SLIPWAY_REVISION"
"""The variable with the revision of the code that runs; images set it."""
IMAGE = "SLIPWAY_IMAGE"
"""The variable with the container's image, by the launcher's name."""
PREFIXES = ("CUBLAS_", "CUDA_", "CUDNN_", "GLOO_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "PYTORCH_", "TORCH_", "UCX_")
"""Prefixes of variables that affect a result or its speed; none of them holds a secret."""
DRIVER = Path("/proc/driver/nvidia/version")
FOLDER = "code"
"""Where lists of packages lie on the durable tier, beside the differences of changed checkouts."""


@functools.cache
def of_process() -> dict[str, Any]:
    """This process's environment, without unknown values.

    python, torch, kernel, packages (the SHA-256 of `packages`), variables (with `PREFIXES`), on a GPU cuda, cudnn, nccl
    and driver, accelerator (the device's name, "cpu" without one), image by the launcher's name, and image_digest if
    that name has one.
    """
    image = os.environ.get(IMAGE, "")
    known = {
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()}",
        "packages": digest.sha256(packages()),
        "driver": _driver(),
        "image": image,
        "image_digest": image.partition("@")[2],
        **_libraries(),
    }
    return {**{name: value for name, value in known.items() if value}, "variables": variables()}


def effective_settings(config: Config, world: "World") -> dict[str, Any]:
    """The ranks and their device, the settings in force on this rank with the source of each, and what it runs on."""
    import torch

    network = fabric.in_force(config.hardware, os.environ)
    runtime = settings.in_force(config, os.environ)
    return {
        "world": world.size,
        "device": str(world.device),
        "torch": torch.__version__,
        "settings": network,
        "runtime": runtime,
        "processors": affinity.cpu_list(os.sched_getaffinity(0)),
        "environment": of_process(),
    }


def variables() -> dict[str, str]:
    """The variables that decide how libraries compute and communicate, by name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)}


@functools.cache
def packages() -> bytes:
    """The installed packages, sorted, `name==version` on each line, as `pip freeze` prints packages from an index.

    They come from the names of the packages' folders, so none of their hundreds of files is read.
    """
    requirements = set[str]()
    for distribution in importlib.metadata.distributions():
        folder = getattr(distribution, "_path", None)
        name, _, rest = (folder.name if folder is not None else "").partition("-")
        version = rest.removesuffix(".dist-info")
        if name and version != rest:
            requirements.add(f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}\n")
    return "".join(sorted(requirements)).encode()


def keep_packages(durable: Path) -> None:
    """Keep the list of packages on the durable tier, named by its hash, once. Raises OSError."""
    atomic.create_only(packages_path(durable, digest.sha256(packages())), packages())


def packages_path(durable: Path, sha256: str) -> Path:
    return durable / FOLDER / f"{sha256}.packages"


def _libraries() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    if not torch.cuda.is_available():
        return {"torch": torch.__version__, "accelerator": "cpu"}
    return {
        "torch": torch.__version__,
        "accelerator": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }


def _driver() -> str:
    """The version of NVIDIA's kernel module; empty if it is not loaded."""
    try:
        match = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", DRIVER.read_text())
    except OSError:
        return ""
    return match[1] if match else ""
