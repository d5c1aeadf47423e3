"""Background calls: a value or an error for who waits, and nobody waits for a dead thread."""

import threading
from collections.abc import Iterator

import pytest

from slipway.trainer.base.background import BackgroundCall

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def threads_die() -> Iterator[None]:
    """Each thread that is started dies before it comes to what it is for."""

    def dies(*_: object) -> None:
        raise RuntimeError("this thread dies")

    before = threading.gettrace()
    threading.settrace(dies)
    yield
    threading.settrace(before)


def test_another_thread_makes_the_call_while_this_one_goes_on() -> None:
    goes_on = threading.Event()
    call = BackgroundCall(lambda: (goes_on.wait(30), threading.current_thread().name), "reader")
    goes_on.set()
    assert call.result() == (True, "reader")


@pytest.mark.parametrize("error", [OSError("a disk"), SystemExit("an end")])
def test_what_the_call_raises_is_raised_where_its_result_is_needed(error: BaseException) -> None:
    def raises() -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        BackgroundCall(raises, "reader").result()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_whose_thread_has_died_is_made_where_its_result_is_needed(threads_die: None) -> None:
    assert BackgroundCall(lambda: threading.current_thread().name, "reader").result() == "MainThread"
