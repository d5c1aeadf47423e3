"""Each command that a page prints is typed by a test, or stands in a list with the reason why it is not."""

from tests.commands.left_out import LEFT_OUT
from tests.commands.printed import PAGES, commands
from tests.commands.walk import WALK

PRINTED = {command for page in PAGES for command in commands(page.read_text())}
TYPED = {turn.printed for turn in WALK if turn.printed}


def test_every_command_of_a_page_is_typed_or_left_out_with_a_reason():
    assert sorted(PRINTED - TYPED - LEFT_OUT.keys()) == [], "put it into tests/commands/walk.py"
    assert all(LEFT_OUT.values())


def test_what_is_typed_or_left_out_stands_on_a_page():
    assert sorted((TYPED | LEFT_OUT.keys()) - PRINTED) == []
    assert sorted(TYPED & LEFT_OUT.keys()) == []
