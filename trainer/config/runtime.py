"""The section `runtime`: settings of CUDA's libraries, of PyTorch's memory and of its compiler, in one place.

They are applied once, when a rank starts (`slipway.trainer.node.settings`). They change a training's numbers by
rounding alone.
"""

from dataclasses import dataclass
from typing import Literal

from slipway.trainer.base.invalid import require


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How PyTorch uses the GPU and the compiler. A variable in the environment of a rank comes before a field here."""

    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    """Which products of fp32 values the tensor cores compute, with 10 bits of mantissa instead of 23 and about seven
    times as fast: none, those of convolutions (as PyTorch does by itself), or matrix products too. It has no effect
    where `run.precision` is not fp32, nor on a CPU."""
    cudnn_benchmark: bool = False
    """Whether cuDNN tries its algorithms for each new shape, and takes the fastest one. It pays for convolutions over
    pictures of one size; which one is the fastest may differ from start to start, and with it the rounding."""
    expandable_segments: bool = True
    """Whether PyTorch grows its blocks of GPU memory instead of adding new ones: less is lost to fragments when sizes
    vary (PYTORCH_ALLOC_CONF)."""
    collect_above: float = 0.0
    """The share of the GPU's memory above which PyTorch gives back blocks that it has not used for long; 0 for never
    before the memory is full (garbage_collection_threshold)."""
    compile_cache: bool = True
    """Whether what the compiler has made is kept on the node's NVMe until the training is over, so that a restart with
    `layout.compile` compiles nothing again (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR). Where the path of the NVMe has
    spaces or quotes, it stays among the temporary files."""

    def __post_init__(self) -> None:
        require(0 <= self.collect_above < 1, "collect_above", "expected a share from 0 up to, but not including, 1")
