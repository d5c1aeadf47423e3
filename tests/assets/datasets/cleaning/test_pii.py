"""Masks: what they replace, what they leave, and that repeating them finds nothing more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.assets.datasets.cleaning import pii

pytestmark = pytest.mark.pure

ALL = tuple(pii.PLACEHOLDERS)
RANDOM = "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA2cD4fG6"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY_BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"

MASKED = {
    "email": [
        "jane.doe+lists@mail.example.co.uk",
        "x@example.org",
        "o'neil@example.com",
        "zoë@müller.de",
        "анна@почта.рф",
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
        KEY_BLOCK.replace("\n", "\\n"),
        "GOCSPX-" + RANDOM[:28],
        "dop_v1_" + "0a1b" * 16,
        "SG." + RANDOM[:22] + "." + RANDOM,
        "123456789:AA" + RANDOM[:33],
    ],
    "phone": ["+1 202-555-0123", "(415) 555-0123", "212-555-0123", "+44 20 7946 0123"],
    "card": ["4111111111111111", "4111 1111 1111 1111", "3782-822463-10005", "6011111111111117"],
    "iban": ["DE89370400440532013000", "GB29 NWBK 6016 1331 9268 19", "NO9386011117947"],
}
NOT_MASKED = {
    "email": [
        "q@k.transpose(0)",
        "x@weight.mT + 1",
        "q@k.data",
        "git@github.com:a/b",
        "@decorator",
        "a@b",
        "user@host:path",
        "x@1.2.3",
        "@example.com",
        "a" * 65 + "@example.com",
    ],
    "ip": [
        *("127.0.0.1", "10.1.2.3", "192.0.2.7", "v1.2.3.4", "1.2.3", "1.2.3.4.5", "8.8.8.888", "224.0.0.1"),
        *("Section 8.2.4.44", "version: 8.2.4.44", "lib-8.2.4.44", "a==8.2.4.44"),
        *("::1", "2001:db8::1", "fe80::1", "std::vector", "12:30:59", "2023:12:01"),
    ],
    "secret": [
        "AKIA" + "IOSFODNN7EXAMPLE" + "X",
        "an_identifier_of_many_words",
        "https://example.org/a/long/path/to/a/page",
        "d41d8cd98f00b204e9800998ecf8427e",
        "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA\n-----END CERTIFICATE-----",
        "api_key = read_the_key_of_the_service",
        "public_key: " + RANDOM,
        "password = getpass()",
        "https://user:password@example",
        "postgres://root:root@example",
        "key='America/Los_Angeles'",
    ],
    "phone": ["2025-11-23 14:05", "555-1234", "100-200-3000", "3.14159265358979", "+35236450.6", "1700000000"],
    "card": ["4111111111111112", "41111111111111111111", "1234567812345670", "a4111111111111111"],
    "iban": ["DE89370400440532013001", "XX89370400440532013000", "DE8937040044053201300"],
}


@pytest.mark.parametrize(("kind", "what"), [(kind, example) for kind in MASKED for example in MASKED[kind]])
def test_these_texts_are_masked(kind: str, what: str):
    placeholder = pii.PLACEHOLDERS[kind]
    assert pii.mask(f"before <{what}>, {what}. after", [kind]) == (
        f"before <{placeholder}>, {placeholder}. after",
        {kind: 2},
    )


@pytest.mark.parametrize(("kind", "what"), [(kind, example) for kind in NOT_MASKED for example in NOT_MASKED[kind]])
def test_these_texts_are_left_unmasked(kind: str, what: str):
    assert pii.mask(f"before {what} after", [kind]) == (f"before {what} after", {})


@pytest.mark.parametrize("line", ["api_key = '{}'", 'SECRET: "{}"', '{{"auth_token": "{}"}}', 'password => "{}"'])
def test_a_random_string_that_a_name_calls_secret_is_masked(line: str):
    assert pii.mask(line.format(RANDOM), ["secret"]) == (line.format("<KEY>"), {"secret": 1})


@pytest.mark.parametrize("value", ["test_bucket_name_2024_long", "aaaaaaaaaaaaaaaaaaaaaaaa1", "correct-horse-battery"])
def test_a_value_that_is_made_of_words_is_left(value: str):
    assert pii.mask(f'key = "{value}"', ["secret"]) == (f'key = "{value}"', {})


@pytest.mark.parametrize(
    "line",
    [
        "API_KEY={}",
        "export TOKEN={}\n",
        "  client_secret:   {} # old",
        "Authorization: Bearer {}\r\n",
        "a=1&token={}&b=2",
    ],
)
def test_such_a_string_is_masked_without_quotes_too(line: str):
    assert pii.mask(line.format(RANDOM), ["secret"]) == (line.format("<KEY>"), {"secret": 1})


@pytest.mark.parametrize("line", ["DB_PASSWORD={}\n", "password: {}", '"passwd": "{}",', "redis://:{}@example.com/0"])
def test_a_password_that_mixes_kinds_of_characters_is_masked(line: str):
    assert pii.mask(line.format("kX9#mP2vL"), ["secret"]) == (line.format("<KEY>"), {"secret": 1})


@pytest.mark.parametrize(
    "address",
    ["https://hooks.slack.com/services/{}", "https://discord.com/api/webhooks/112233445566778899/{}"],
)
def test_of_a_webhook_what_gives_access_is_masked(address: str):
    assert pii.mask(address.format(RANDOM * 2), ["secret"])[0] in (
        "https://hooks.slack.com/services/<KEY>",
        "https://discord.com/api/webhooks/<KEY>",
    )


@pytest.mark.parametrize("text", ["連絡先は{}まで", "문의: {}로", "Write to {}.The next sentence"])
def test_an_address_is_found_without_a_space_around_it(text: str):
    assert pii.mask(text.format("jane@example.com"), ["email"])[0] == text.format("<EMAIL>")


def test_a_heading_is_no_address_and_a_line_of_a_log_is_one():
    text = "3.2.1.4 Installing the driver\n3.2.1.4 - - [06/Nov/2025] GET"
    assert pii.mask(text, ["ip"]) == (text.replace("3.2.1.4 -", "<IP_ADDRESS> -"), {"ip": 1})


def test_a_number_counts_as_a_telephone_number_after_such_a_word():
    assert pii.mask("Tel.: 030 23180000, room 030 23180000", ["phone"])[0] == "Tel.: <PHONE_NUMBER>, room 030 23180000"


def test_patterns_of_ones_own_are_masked_by_their_name():
    masked = pii.mask("see ABC-12 of x@example.org", ["email"], {"ticket": "[A-Z]{3}-[0-9]+"})
    assert masked == ("see <TICKET> of <EMAIL>", {"ticket": 1, "email": 1})


@pytest.mark.parametrize("pattern", ["[A-Z]+", ".", "(?<=<)[A-Z]+", "x*", "<.*>"])
def test_a_pattern_that_also_matches_placeholders_ends(pattern: str):
    masked, counts = pii.mask("AB x@example.org <", ["email"], {"mine": pattern})
    assert pii.mask(masked, ["email"], {"mine": pattern}) == (masked, {})
    assert counts.get("mine", 0) == masked.count("<MINE>")


def test_a_random_string_by_another_name_is_left():
    assert pii.mask(f'checksum = "{RANDOM}"', ["secret"])[1] == {}


def test_a_private_key_without_its_end_is_masked_as_far_as_it_goes():
    text = KEY_BLOCK.rpartition("\n")[0] + "\n(truncated)"
    assert pii.mask(text, ["secret"])[0] == "<KEY>(truncated)"


def test_only_the_kinds_of_the_recipe_are_masked():
    assert pii.mask("x@example.org 8.8.8.8", ["ip"]) == ("x@example.org <IP_ADDRESS>", {"ip": 1})


def test_letters_beyond_ascii_do_not_move_what_is_masked():
    assert pii.mask("é 道 x@example.org é 8.8.8.8 😀", ALL)[0] == "é 道 <EMAIL> é <IP_ADDRESS> 😀"


PIECES = [
    *MASKED["email"],
    *MASKED["ip"],
    *MASKED["secret"],
    *MASKED["card"],
    *MASKED["phone"],
    *NOT_MASKED["ip"],
    "pwd=",
    "key='",
    "'",
    RANDOM,
]
SOUP = st.lists(st.sampled_from(PIECES) | st.text("a1.@:-/\"' é", max_size=3), max_size=8).map("".join)


@given(SOUP)
def test_masking_twice_changes_nothing_more(text: str):
    masked, _ = pii.mask(text, ALL)
    assert pii.mask(masked, ALL) == (masked, {})


@given(SOUP)
def test_the_counts_are_those_of_the_placeholders(text: str):
    masked, counts = pii.mask(text, ALL)
    assert {kind: n for kind, placeholder in pii.PLACEHOLDERS.items() if (n := masked.count(placeholder))} == counts


@pytest.mark.parametrize("prefix", ["sk-", "sk-a-", "xox", "eyJa.", "AKIA"])
def test_a_megabyte_of_beginnings_of_secrets_is_searched_once(prefix: str):
    text = prefix * (1_000_000 // len(prefix))
    assert pii.mask(text, ["secret"]) == (text, {})
