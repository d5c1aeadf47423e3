"""Cases of personal data and secrets: texts in which something is planted, and texts that only look so.

All are drawn here from one seed: nobody's data is among them. Keys are random, numbers have valid check digits, and
telephone numbers are of ranges that are set aside for fiction where a country has one.
"""

import base64
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

DIGITS, HEX, BASE62 = string.digits, "0123456789abcdef", string.ascii_letters + string.digits
BASE64 = BASE62 + "+/"

NAMES = "ana.silva j_smith zoë.müller jörg анна.иванова o.neill+news 用户 bob info kim99 x.y-z"
DOMAINS = "example.com mail.example.co.uk müller.de почта.рф uni-bonn.de 例子.广告 acme.io example.museum"


@dataclass(frozen=True)
class Case:
    """A text, and what must be masked in it by its kind."""

    text: str
    planted: tuple[tuple[str, str], ...]


def cases(seed: int = 17) -> Iterator[Case]:
    """All cases: each template with a few draws, then the texts in which nothing is to be masked."""
    draw = random.Random(seed)
    for kind, drawn, templates in _planted(draw):
        for template in templates:
            value = drawn()
            yield Case(template.replace("@@", value), ((kind, value),))
    for text in _innocent(draw):
        yield Case(text, ())


def _random(draw: random.Random, signs: str, count: int) -> str:
    """Signs among which are a small letter, a capital and a digit, if there are such."""
    while True:
        text = "".join(draw.choices(signs, k=count))
        if all(not set(kind) & set(signs) or set(kind) & set(text) for kind in (string.ascii_uppercase, DIGITS)):
            return text


def _planted(draw: random.Random) -> list[tuple[str, Callable[[], str], list[str]]]:
    def of(signs: str, count: int, before: str = "", behind: str = "") -> Callable[[], str]:
        return lambda: before + _random(draw, signs, count) + behind

    names, domains = (itertools.cycle(listing.split()) for listing in (NAMES, DOMAINS))
    assigned = [
        "API_KEY=@@\n",
        "export SECRET_TOKEN=@@",
        "api_key: @@\n",
        "  client_secret:   @@ # rotate\n",
        "[default]\nauth_token = @@\n",
        'config = {"api_key": "@@"}',
        "curl -H 'Authorization: Bearer @@' https://api.example.com/v1",
        "Authorization: Bearer @@\r\nAccept: */*\r\n",
        "access_token => '@@',",
        "requests.get(url, params={'token': '@@'})",
        "DB_CREDENTIAL=@@;",
        "const authToken = `@@`;",
    ]
    issued = ["key @@ was leaked", 'client("@@")', "TOKEN=@@\n", "see <@@>."]
    return [
        (
            "email",
            lambda: f"{next(names)}@{next(domains)}",
            ["Write to @@.", "mailto:@@", "Author: Ann <@@>", "a,@@,b\n"] * 8,
        ),
        (
            "email",
            lambda: f"{_random(draw, string.ascii_lowercase, 6)}@example.org",
            ["連絡先は@@まで。", "문의: @@로", "x=@@&y=1"],
        ),
        (
            "ip",
            lambda: _ip(draw),
            ["from @@ port 22", "@@ - - [06/Nov/2025]", "http://@@/index", "ping @@.", "nameserver @@\n"] * 3,
        ),
        ("ip", of(HEX, 4, "2a00:1450:4001:831::"), ["AAAA @@", "from @@ to all"]),
        ("phone", lambda: f"+1 202-555-{_random(draw, DIGITS, 4)}", ["Call @@.", "@@ is mine", "tel:@@"]),
        ("phone", lambda: f"(415) 555-{_random(draw, DIGITS, 4)}", ["Phone: @@", "@@, ask for Ann", "fax @@"]),
        ("phone", lambda: f"212-555-0{_random(draw, DIGITS, 3)}", ["reach us at @@ today", "phone number @@"]),
        ("phone", lambda: f"+44 20 7946 0{_random(draw, DIGITS, 3)}", ["London: @@", "Fax: @@."]),
        ("phone", lambda: f"+49 89 1234{_random(draw, DIGITS, 4)}", ["München, @@", "Tel. @@"]),
        ("phone", lambda: f"+33 1 99 00 {draw.randint(10, 99)} {draw.randint(10, 99)}", ["Paris @@", "tél. @@"]),
        ("phone", lambda: f"030 2318{_random(draw, DIGITS, 4)}", ["Tel.: @@", "Telefon @@, Berlin"]),
        ("card", lambda: _card(draw, "4", 16), ["card @@ exp 12/27", "PAN=@@", "@@\n", "Visa: @@."]),
        ("card", lambda: _spaced(_card(draw, "53", 16), " "), ["pay with @@", "Mastercard @@ ok"]),
        ("card", lambda: _spaced(_card(draw, "6011", 16), "-"), ["no. @@", "Discover @@."]),
        ("card", lambda: _card(draw, "37", 15), ["amex @@", "'@@'"]),
        ("iban", lambda: _iban(draw, "DE", 18), ["IBAN @@", "Konto: @@.", "pay to @@, thanks"]),
        ("iban", lambda: _spaced(_iban(draw, "FR", 23), " "), ["compte @@", "IBAN: @@\n"]),
        ("iban", lambda: _spaced(_iban(draw, "NL", 14, "ABNA"), " "), ["rekening @@", "(@@)"]),
        ("secret", of(BASE62, 32), assigned),
        ("secret", of(HEX, 40), assigned),
        ("secret", of(BASE64, 40), assigned[:8]),
        ("secret", of(BASE62, 36, "ghp_"), issued),
        ("secret", of(string.ascii_uppercase + "234567", 16, "AKIA"), issued),
        ("secret", of(BASE62, 24, "sk_live_"), issued),
        ("secret", of(BASE62 + "_-", 35, "AIza"), issued[:2]),
        ("secret", of(BASE62, 28, "GOCSPX-"), issued[:2]),
        ("secret", of(HEX, 64, "dop_v1_"), issued[:2]),
        ("secret", of(HEX, 32, "shpat_"), issued[:2]),
        ("secret", of(BASE62 + "_-", 43, f"SG.{_random(draw, BASE62, 22)}."), issued[:3]),
        ("secret", of(BASE62, 33, "123456789:AA"), ["bot = Bot('@@')", "https://api.telegram.org/bot@@/getMe"]),
        (
            "secret",
            of(BASE62, 24, "T024BE7LD/B0172KQ9Z/"),
            ["https://hooks.slack.com/services/@@", "url: https://hooks.slack.com/services/@@\n"],
        ),
        (
            "secret",
            of(BASE62, 68, "112233445566778899/"),
            ["https://discord.com/api/webhooks/@@", "'https://discordapp.com/api/webhooks/@@'"],
        ),
        (
            "secret",
            of(BASE64, 86, "", "=="),
            ["DefaultEndpointsProtocol=https;AccountName=a;AccountKey=@@;EndpointSuffix=core"],
        ),
        ("secret", lambda: _jwt(draw), ["token=@@", "Authorization: Bearer @@\n", 'id_token: "@@"']),
        (
            "secret",
            lambda: _password(draw),
            ["DB_PASSWORD=@@\n", "password: @@\n", '"password": "@@",', "PGPASSWORD='@@' psql", "pwd = @@"],
        ),
        (
            "secret",
            lambda: _password(draw),
            ["postgres://app:@@@db.example.com:5432/app", "redis://:@@@cache.example.com:6379"],
        ),
        ("secret", lambda: _private_key(draw, "\n"), ["@@\n", "key:\n@@\nend"]),
        ("secret", lambda: _private_key(draw, "\\n"), ['{"private_key": "@@\\n", "client_id": 1}', "KEY=@@"]),
    ]


def _innocent(draw: random.Random) -> Iterator[str]:
    sha, md5, b64 = _random(draw, HEX, 40), _random(draw, HEX, 32), _random(draw, BASE64, 200)
    card = _card(draw, "4", 16)
    wrong = card[:-1] + str((int(card[-1]) + 1) % 10)
    yield from f"""
attention = (q@k.transpose(-2, -1)) * scale
y = x@self.weight.mT + self.bias
logits = h@W.T
out = A@B.to(device)
scores = q@k.data
@app.route("/login")
@pytest.mark.parametrize("x", [1])
@media (max-width: 600px) {{}}
npm install @angular/core@12.0.1
git clone git@github.com:python/cpython.git
follow @somebody on the network
see \\cite{{smith@2020}} and user@host
foo@bar.baz_qux is no address, and neither is a@b
3.2.1.4 Installing the driver
Section 8.2.4.44 describes the header
see chapter 4.3.2.1 for more
Version 91.0.44.12 was released
pip install package==1.22.3.4
linux-image-6.1.0.13 and libfoo-2.4.6.8.tar.gz
    1.2.10.4 General Provisions
The product 10.20.30.40 Ltd.
127.0.0.1 localhost, 192.168.1.1, 10.0.0.1, 172.16.3.4
std::vector<int>::iterator, 12:30:59, fe80::1
commit {sha}
md5: {md5}
integrity sha512-{b64[:86]}==
docker pull image@sha256:{_random(draw, HEX, 64)}
background: url(data:image/png;base64,{b64})
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64[:40]} ann
public_key: {b64[:44]}
cache_key: {md5}
primary_key = "id_{md5[:20]}"
etag = "{md5}"
id = "{md5[:8]}-{md5[8:12]}-4{md5[12:15]}-a{md5[15:18]}-{md5[18:30]}"
api_key = os.environ["SERVICE_API_KEY"]
API_KEY=your-api-key-goes-here-please
token: ${{{{ secrets.GITHUB_TOKEN }}}}
secret_name: my-database-credentials-production
password = getpass.getpass("Password: ")
password: string; // at least eight
const password = this.form.controls.password.value;
PASSWORD=changeme
if (token == nextTokenInTheStreamOfTokens) return
tokenizer = AutoTokenizerForSequenceClassification2()
key = sorted_dictionary_of_all_known_keys
auth = getAuthenticationProviderFromSettings
https://user:password@example.com/path
postgres://app:${{DB_PASSWORD}}@db/app
Bearer of bad news: nothing else
the key to success is patience, says the author
ISBN 978-3-16-148410-0 and ISSN 2049-3630
order number {wrong}
0123456789012345678901234567
pi = 3.14159265358979323846
on 2025-11-23 at 14:05:33, for 1700000000 s
pages 100-200, rows 1000-2000, 555-1234
latitude 48.137154, longitude 11.576124
MAC 00:1B:44:11:3A:B7, colour #1A2B3C
version 2.0.1 of 2025.11.23, build 20251123.4
call 911 or 112 in an emergency
part no. 4111-2222-33
DE is a country, GB29 is a road
GB29 NWBK 6016 1331 9268 20
ABCDEFGHIJKLMNOPQRSTUVWXYZ234567 is the alphabet of base32
-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----
-----BEGIN PUBLIC KEY----- MIIB -----END PUBLIC KEY-----
""".strip().splitlines()
    yield json.dumps({"cells": [{"execution_count": 3, "id": md5[:8]}]})


def _ip(draw: random.Random) -> str:
    return ".".join(str(draw.randint(41, 99)) for _ in range(4))


def _check_digit(digits: str) -> str:
    total = sum(sum(divmod(int(digit) * (2 - position % 2), 10)) for position, digit in enumerate(reversed(digits)))
    return str(-total % 10)


def _card(draw: random.Random, first: str, length: int) -> str:
    digits = first + "".join(draw.choices(DIGITS, k=length - 1 - len(first)))
    return digits + _check_digit(digits)


def _iban(draw: random.Random, country: str, digits: int, bank: str = "") -> str:
    account = bank + "".join(draw.choices(DIGITS, k=digits - len(bank)))
    number = int("".join(str(int(sign, 36)) for sign in account + country + "00"))
    return f"{country}{98 - number % 97:02d}{account}"


def _spaced(value: str, sign: str) -> str:
    return sign.join(value[at : at + 4] for at in range(0, len(value), 4))


def _jwt(draw: random.Random) -> str:
    parts = ({"alg": "HS256", "typ": "JWT"}, {"sub": _random(draw, DIGITS, 9), "name": "Ann"})
    head = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{_random(draw, BASE62 + '_-', 43)}"


def _password(draw: random.Random) -> str:
    return _random(draw, BASE62, 9) + draw.choice("!#*+?") + draw.choice(string.ascii_lowercase) + draw.choice(DIGITS)


def _private_key(draw: random.Random, end: str) -> str:
    kind = draw.choice(["RSA ", "EC ", "OPENSSH ", ""])
    lines = [_random(draw, BASE64, 64) for _ in range(5)]
    return end.join([f"-----BEGIN {kind}PRIVATE KEY-----", *lines, f"-----END {kind}PRIVATE KEY-----"])
