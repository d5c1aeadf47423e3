"""Masks: what they replace, what they leave, and that repeating them finds nothing more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.datasets.cleaning import pii

pytestmark = pytest.mark.pure

ALL = ("email", "ip", "secret")
RANDOM = "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA2cD4fG6"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"

MASKED = {
    "email": [
        "jane.doe+lists@mail.example.co.uk",
        "x@example.org",
        "o'neil@example.com",
    ],
    "ip": ["8.8.8.8", "193.99.144.85", "2001:4860:4860::8888", "2a00:1450:4001:0831:0000:0000:0000:200e"],
    "secret": [
        "AKIA" + "IOSFODNN7EXAMPLE",
        "ghp_" + RANDOM,
        "github_pat_" + "a1" * 41,
        "glpat-" + RANDOM[:20],
        "xoxb-" + "123456789012-" + RANDOM[:24],
        "AIza" + RANDOM[:35],
        "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
        "npm_" + RANDOM,
        "sk_live_" + RANDOM[:24],
        "sk-" + RANDOM[:20] + "T3BlbkFJ" + RANDOM[:20],
        JWT,
        KEY_BLOCK,
    ],
}
LEFT = {
    "email": ["@decorator", "a@b", "user@host:path", "x@1.2.3", "@example.com", "a" * 65 + "@example.com"],
    "ip": [
        *("127.0.0.1", "10.1.2.3", "192.0.2.7", "v1.2.3.4", "1.2.3", "1.2.3.4.5", "8.8.8.888", "224.0.0.1"),
        *("::1", "2001:db8::1", "fe80::1", "std::vector", "12:30:59", "2023:12:01"),
    ],
    "secret": [
        "AKIA" + "IOSFODNN7EXAMPLE" + "X",
        "an_identifier_of_many_words",
        "https://example.org/a/long/path/to/a/page",
        "d41d8cd98f00b204e9800998ecf8427e",
        "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA\n-----END CERTIFICATE-----",
    ],
}


@pytest.mark.parametrize(("kind", "what"), [(kind, each) for kind in MASKED for each in MASKED[kind]])
def test_these_texts_are_masked(kind: str, what: str):
    placeholder = pii.PLACEHOLDERS[kind]
    assert pii.mask(f"before <{what}>, {what}. after", [kind]) == (
        f"before <{placeholder}>, {placeholder}. after",
        {kind: 2},
    )


@pytest.mark.parametrize(("kind", "what"), [(kind, each) for kind in LEFT for each in LEFT[kind]])
def test_these_texts_are_left_unmasked(kind: str, what: str):
    assert pii.mask(f"before {what} after", [kind]) == (f"before {what} after", {})


@pytest.mark.parametrize("line", ["api_key = '{}'", 'SECRET: "{}"', '{{"auth_token": "{}"}}', 'password => "{}"'])
def test_a_random_string_that_a_name_calls_secret_is_masked(line: str):
    assert pii.mask(line.format(RANDOM), ["secret"]) == (line.format("<KEY>"), {"secret": 1})


@pytest.mark.parametrize("value", ["test_bucket_name_2024_long", "aaaaaaaaaaaaaaaaaaaaaaaa1", "correct-horse-battery"])
def test_a_value_that_is_made_of_words_is_left(value: str):
    assert pii.mask(f'key = "{value}"', ["secret"]) == (f'key = "{value}"', {})


def test_a_random_string_by_another_name_is_left():
    assert pii.mask(f'checksum = "{RANDOM}"', ["secret"])[1] == {}


def test_a_private_key_without_its_end_is_masked_as_far_as_it_goes():
    text = KEY_BLOCK.rpartition("\n")[0] + "\n(truncated)"
    assert pii.mask(text, ["secret"])[0] == "<KEY>(truncated)"


def test_only_the_kinds_of_the_recipe_are_masked():
    assert pii.mask("x@example.org 8.8.8.8", ["ip"]) == ("x@example.org <IP_ADDRESS>", {"ip": 1})


def test_letters_beyond_ascii_do_not_move_what_is_masked():
    assert pii.mask("é 道 x@example.org é 8.8.8.8 😀", ALL)[0] == "é 道 <EMAIL> é <IP_ADDRESS> 😀"


PIECES = [*MASKED["email"], *MASKED["ip"], *MASKED["secret"], *LEFT["ip"], "key='", "'", RANDOM]
SOUP = st.lists(st.sampled_from(PIECES) | st.text("a1.@:-/\"' é", max_size=3), max_size=8).map("".join)


@given(SOUP)
def test_masking_twice_changes_nothing_more(text: str):
    masked, _ = pii.mask(text, ALL)
    assert pii.mask(masked, ALL) == (masked, {})


@given(SOUP)
def test_the_counts_are_those_of_the_placeholders(text: str):
    masked, counts = pii.mask(text, ALL)
    assert {kind: n for kind, each in pii.PLACEHOLDERS.items() if (n := masked.count(each))} == counts
