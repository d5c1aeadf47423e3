"""Kills: an act that is killed before its n-th step on disk, in a process of its own."""

import os
import signal
import traceback
from collections.abc import Callable, Sequence

from blake3 import blake3

from slipway.trainer.base import atomic, verify


class _OneThread:
    """In the place of `blake3`: the threads with which the parent has hashed are not there after a fork, and a child
    would wait for them for ever."""

    AUTO = 1

    def __call__(self, *data: bytes, max_threads: int = 1) -> blake3:
        return blake3(*data)


def killed_at(write: int, act: Callable[[], object], beside: Sequence[tuple[object, str]] = ()) -> bool:
    """Do something in a child that is killed before its n-th step on disk; False when it came to its end before.

    Steps are the atomic writes and the functions `beside` them, each with its module or class.
    """
    child = os.fork()
    if child == 0:
        writes_left = write

        def counted(function: Callable[..., object]) -> Callable[..., object]:
            def called(*arguments: object, **named: object) -> object:
                nonlocal writes_left
                if writes_left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                writes_left -= 1
                return function(*arguments, **named)

            return called

        own = [(atomic, name) for name in ("write", "replace", "show", "create_only")]
        others = [(owner, name, counted(getattr(owner, name))) for owner, name in [*own, *beside]]
        for owner, name, instead in [(verify, "blake3", _OneThread()), *others]:
            setattr(owner, name, instead)
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), "the act failed; its output says why"
    return status == signal.SIGKILL
