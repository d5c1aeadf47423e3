"""Each command that a page prints is typed or called by a test, or stands in a list with the reason why it is not."""

import functools
import re

from tests.commands.called import in_tests, options_of, verb_of
from tests.commands.left_out import LEFT_OUT
from tests.commands.printed import PAGES, ROOT, call, commands
from tests.commands.walk import AT_ONCE, WALK

PRINTED = {command for page in PAGES for command in commands(page.read_text())}
TYPED = {turn.printed for turn in (*WALK, *AT_ONCE) if turn.printed}


def test_every_command_of_a_page_is_typed_or_called_by_a_test_or_left_out_with_a_reason():
    rest = PRINTED - TYPED - LEFT_OUT.keys()
    assert sorted(command for command in rest if not _is_called(command)) == [], "put it into tests/commands/walk.py"
    assert all(LEFT_OUT.values())


def test_what_is_typed_or_left_out_stands_on_a_page():
    assert sorted((TYPED | LEFT_OUT.keys()) - PRINTED) == []
    assert sorted(TYPED & LEFT_OUT.keys()) == []


def test_a_test_that_a_reason_names_is_there():
    named = {path for why in LEFT_OUT.values() for path in re.findall(r"tests/[\w/.]+\w", why)}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_a_command_that_no_test_calls_is_found():
    assert not _is_called("slipway ls --colour red") and not _is_called("make coffee")
    assert _is_called("slipway sweeps pause tiny-dec --why 'the cluster is needed'")


@functools.cache
def _called() -> dict[str, set[str]]:
    return in_tests()


def _is_called(command: str) -> bool:
    """Whether a test calls the verb, with each of the options."""
    if "slipway" not in command.split():
        return False
    arguments = call(command)
    return verb_of(arguments) in _called() and options_of(arguments) <= _called()[verb_of(arguments)]
