"""Background calls: one call each in a daemon thread; the threads of an executor would delay the end of the process."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BackgroundCall(Generic[Value]):
    """A call that another thread makes from now on."""

    def __init__(self, call: Callable[[], Value], name: str) -> None:
        """`name` is the thread's."""
        self._call = call
        self._outcome: Future[Value] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def result(self) -> Value:
        """Wait for the call; returns its result or raises its error.

        If the thread has died before the call, the call is made here, so that it does not wait for a dead thread.
        """
        self.wait()
        if not self._outcome.done():
            self._run()
        return self._outcome.result()

    def wait(self) -> None:
        """Wait until no thread makes the call any more."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self._outcome.set_result(self._call())
        except BaseException as error:  # notify the waiting thread even after an error
            self._outcome.set_exception(error)
