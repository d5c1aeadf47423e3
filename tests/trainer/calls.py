"""How often each of PyTorch's operations is called while something runs."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """How often each operation is called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.of: Counter[Any] = Counter()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        self.of[operation] += 1
        return operation(*arguments, **(options or {}))
