"""Kills: an act that is killed before its n-th step on disk, in a process of its own."""

import os
import signal
from collections.abc import Callable

from trainer.base import atomic


def killed_at(write: int, act: Callable[[], object]) -> bool:
    """Do something in a child that is killed before its n-th step on disk; False when it came to its end before."""
    child = os.fork()
    if child == 0:
        left = write

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def called(*arguments: object, **named: object) -> object:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return function(*arguments, **named)

            return called

        for name in ("write", "replace", "show", "create_only"):
            setattr(atomic, name, counted(getattr(atomic, name)))
        act()
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL
