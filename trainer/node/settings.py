"""Settings: the section `runtime` applied to this process, before anything touches the GPU.

`set_environment` sets the variables that libraries read when they start; a rank calls it before it imports torch.
`set_torch` makes the settings for which torch has functions. A variable that is set already does not change.
"""

import os
import re
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from slipway.trainer.base import paths
from slipway.trainer.config.operation import Runtime
from slipway.trainer.config.resolved import Config
from slipway.trainer.diagnosis import flight

ALLOCATOR = "PYTORCH_ALLOC_CONF"
EARLIER = "PYTORCH_CUDA_ALLOC_CONF"
"""The allocator's variable, and its earlier name: if a rank's environment has either, the recipe sets none."""
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
"""Folders of the compiler's caches, below that of the training."""
SPLIT = re.compile(r"[\s'\"\\]")
"""Characters that split a path on a compiler's command line, which PyTorch writes without quotes. If the path of the
NVMe has one, PyTorch's caches stay in their default place, among the temporary files."""


def set_environment(config: Config, environment: MutableMapping[str, str]) -> None:
    """Set the variables of `config` that are not set yet: the environment of a rank overrides the recipe."""
    for name, value in variables(config, environment).items():
        if name != ALLOCATOR or EARLIER not in environment:
            environment.setdefault(name, value)


def variables(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for a configuration on the node that `environment` names."""
    runtime = config.runtime
    values = {ALLOCATOR: text} if (text := allocator(runtime)) else {}
    folder = compiled(config, environment)
    if runtime.compile_cache and config.layout.compile and not SPLIT.search(str(folder)):
        values |= {name: str(folder / part) for name, part in CACHES.items()}
    return values | flight.variables(environment)


def allocator(runtime: Runtime) -> str:
    """The options of PyTorch's allocator of GPU memory, as its variable has them."""
    options = ["expandable_segments:True"] if runtime.expandable_segments else []
    if runtime.collect_above:
        options.append(f"garbage_collection_threshold:{runtime.collect_above}")
    return ",".join(options)


def compiled(config: Config, environment: Mapping[str, str]) -> Path:
    """The folder of the compiler's caches of this training on this node; a restart finds it again."""
    nvme = Path(config.placement.nvme.format(node=environment.get("SLIPWAY_NODE", "local")))
    return nvme / paths.compiled(config.training)


def in_force(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """The value and the source of each setting after they were set: "all (recipe)"."""
    expected = variables(config, environment)
    names = (ALLOCATOR, EARLIER, *CACHES)
    settings = {
        name: f"{environment[name]} ({'recipe' if environment[name] == expected.get(name) else 'environment'})"
        for name in names
        if name in environment
    }
    return settings | {"tf32": f"{config.runtime.tf32} (recipe)"}


def set_torch(runtime: Runtime, deterministic: bool) -> None:
    """Set how torch multiplies, and which algorithms it takes; deterministic ones come before fast ones.

    With them, an operation that has no such algorithm raises RuntimeError later.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = runtime.tf32 == "all"
    torch.backends.cudnn.allow_tf32 = runtime.tf32 != "none"
    torch.backends.cudnn.benchmark = runtime.cudnn_benchmark and not deterministic
    if deterministic:
        # cuBLAS is deterministic only with a workspace of a fixed size, which it reads when it starts (PyTorch's notes
        # on reproducibility).
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
