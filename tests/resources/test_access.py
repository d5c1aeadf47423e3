"""Access: whom a proxy's header names, and what the settings may say of people."""

from pathlib import Path

import pytest
from starlette.datastructures import Headers

from slipway.recipes.problems import InvalidRecipes
from slipway.resources import platform
from slipway.resources.access import Access
from tests.kubernetes import settings

pytestmark = pytest.mark.pure
HEADER = "X-Forwarded-User"
RULES = Access(user_header=HEADER, operators=frozenset({"åsa@x.example"}))


def person(*values: bytes) -> str:
    return RULES.person(Headers(raw=[(HEADER.lower().encode(), value) for value in values]))


def test_a_name_has_the_letters_that_the_proxy_sent():
    """Proxies send UTF-8, and HTTP says nothing of what a header's bytes mean."""
    assert person("åsa@x.example".encode()) == "åsa@x.example"
    assert person("åsa@x.example".encode("latin-1")) == "åsa@x.example"


def test_a_letter_may_be_written_as_one_sign_or_as_two():
    assert not RULES.refusal(person("a\u030asa@x.example".encode()))


def test_who_gives_no_name_is_nobody_known():
    assert person() == person(b"") == ""
    assert Access().person(Headers({HEADER: "oda"})) == "", "no proxy names anybody"


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([b"oda", b"pia"], "2 names, expected one"),
        ([b"a" * 257], "257 characters, expected 256 characters at most"),
        ([b"oda\tpia"], r"'oda\\tpia', expected a name of letters that can be printed"),
        (["oda\u202epia".encode()], r"'oda\\u202epia', expected a name of letters that can be printed"),
        ([b"oda "], "'oda ', expected no space before or after it"),
    ],
)
def test_what_is_no_name_is_refused(values: list[bytes], problem: str):
    with pytest.raises(ValueError, match=f"{HEADER}: found {problem}"):
        person(*values)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("user_header", "X Forwarded", "expected the name of a header, such as X-Forwarded-User"),
        ("user_header", "X-User:", "expected the name of a header, such as X-Forwarded-User"),
        ("user_header", "Authorization", "expected a header that names a person: this one carries a secret"),
        ("user_header", "cookie", "expected a header that names a person: this one carries a secret"),
        ("user_header", "X-Forwarded-Access-Token", "expected a header that names a person: this one carries a secret"),
        ("operators", ["oda@x.example "], "expected no space before or after it"),
        ("promoters", ["oda\n"], "expected a name of letters that can be printed"),
        ("promoters", ["a" * 257], "expected 256 characters at most"),
    ],
)
def test_what_the_settings_say_of_people_is_read_strictly(tmp_path: Path, field: str, value: object, problem: str):
    people = {"user_header": HEADER, field: value}
    file = settings.write(tmp_path / "platform.yaml", {**settings.settings(), **people})
    with pytest.raises(InvalidRecipes, match=f"{field}.*{problem}"):
        platform.load(file)
