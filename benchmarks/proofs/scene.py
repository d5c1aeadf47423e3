"""Scene: where the parts of `benchmarks.gpu_proof` run, how large their work is there, and how they take times."""

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

Figures = Iterator[dict[str, Any]]
"""What a part finds, as soon as it finds it: what it has given so far stands when it is cut off."""
NEEDS_CUDA = "skipped: needs CUDA"


class Unprovable(Exception):
    """A part says nothing on this machine; says why."""


@dataclass(frozen=True)
class Scene:
    """The device of a part."""

    device: torch.device

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def size(self, on_gpu: int, on_cpu: int) -> int:
        """A number of rows, columns or repetitions."""
        return on_gpu if self.is_gpu else on_cpu

    def wait(self) -> None:
        """Let the device finish."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def milliseconds(self, act: Callable[[], object], count: int = 10, warm_up: int = 3) -> float:
        """How long `act` takes, on average of `count` times after some that do not count."""
        for _ in range(warm_up):
            act()
        self.wait()
        begun = time.perf_counter()
        for _ in range(count):
            act()
        self.wait()
        return (time.perf_counter() - begun) / count * 1e3

    def compile_quickly(self) -> None:
        """On a CPU, capture what is to be compiled and run it as it is from now on in this process: a compiler of C++
        would take minutes for each block, and prove nothing about a GPU."""
        if not self.is_gpu:
            known: Any = torch
            compiled = known.compile
            known.compile = functools.partial(compiled, backend="aot_eager")

    def peak_gibibytes(self, act: Callable[[], object]) -> float | str:
        """The GPU memory that `act` takes beside what is there."""
        if not self.is_gpu:
            return NEEDS_CUDA
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        act()
        return (torch.cuda.max_memory_allocated() - before) / 2**30
