"""One process of tests/trainer/step/test_parallel.py in double precision: what its fp32 would be without rounding.

Called as `tests.trainer.layout_process` is. The trainer says fp32 where it means the type of weights and sums: here
this word means double precision.
"""

import sys
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch_module: Any = torch
    torch_module.float32 = torch_module.float = torch.float64
    torch_module.Tensor.float = torch.Tensor.double
    from tests.trainer import layout_process  # only now: its modules take the word as they are imported

    layout_process.main(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    main()
