"""Secret lines: what of a difference, as git writes it, looks like a secret, by the file's name and by its contents.

A line that was added is written over, and the difference still applies. A secret in lines that were there before
cannot be: their hunk is left out.
"""

import re
from fnmatch import fnmatch
from pathlib import PurePosixPath

from slipway.trainer.base import secrets

NAMES = (".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.urls",
         "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", "pg_service.conf",
         ".htpasswd", ".git-credentials", ".npmrc", ".pypirc", "kubeconfig*", "*token*", "*secret*", "*credential*",
         "*passw*", "*apikey*", "*api_key*", "*api-key*")  # fmt: skip
"""Names of files that are used for secrets."""
CODE = (".py", ".pyi", ".md", ".html", ".css", ".js", ".ts", ".tpl", ".sh", ".rst")
"""A file with such an ending is judged by its contents alone: its name says what it is about."""
NO_SECRET = re.compile(r"tokeni[sz]", re.IGNORECASE)
ASSIGNED = re.compile(
    r"(?m)^\s*(?:export\s+)?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)[A-Z0-9_]*"
    r"\s*[=:]\s*[\"']?(?=[^\s\"']*[0-9])[^\s\"'{}()\[\]<>$,]{8,}"
)
"""A variable as shells and `.env` files set it, whose value has a digit: names of other variables have none."""
BARE = re.compile(r"(?m)^[A-Za-z0-9+/]{60,}={0,2}$")
"""A line of a key, whose first line may stand elsewhere."""
OVER = "[left out: it looks like a secret]"
_HUNK = re.compile(rb"(?m)^@@ ")


def is_secret_name(path: str) -> bool:
    """Whether a file is named as files with secrets are."""
    name = PurePosixPath(path).name.lower()
    return not name.endswith(CODE) and not NO_SECRET.search(name) and any(fnmatch(name, pattern) for pattern in NAMES)


def of_section(path: str, section: bytes) -> tuple[bytes, str]:
    """A file's part of a difference without what looks like a secret, and what is missing; "" where nothing is."""
    if is_secret_name(path):
        return b"", "the name is one of a file with secrets"
    starts = [match.start() for match in _HUNK.finditer(section)]
    if not starts:
        return section, ""
    bounds = zip(starts, [*starts[1:], len(section)], strict=True)
    hunks = list[bytes]()
    added = 0
    dropped = 0
    for begin, end in bounds:
        hunk, count = _clean(section[begin:end].decode(errors="surrogateescape"))
        added += max(count, 0)
        dropped += count < 0
        hunks += [hunk.encode(errors="surrogateescape")] if count >= 0 else []
    notes_on_omissions = [f"{added} lines that look like a secret"] if added else []
    notes_on_omissions += [f"{dropped} hunks beside what looks like a secret"] if dropped else []
    return (section[: starts[0]] + b"".join(hunks) if hunks else b""), ", ".join(notes_on_omissions)


def _clean(hunk: str) -> tuple[str, int]:
    """A hunk with its added secrets written over, and how many lines that were; -1 where it cannot be kept."""
    lines = hunk.split("\n")
    if _secret(lines, " -"):
        return "", -1
    indices = _secret(lines, " +")
    if any(not lines[index].startswith("+") for index in indices):
        return "", -1
    for index in indices:
        lines[index] = f"+{OVER}"
    return "\n".join(lines), len(indices)


def _secret(lines: list[str], marks: str) -> list[int]:
    """The places of the lines, of those that begin with one of these marks, in which something looks like a secret."""
    indices = [index for index, line in enumerate(lines) if index and line and line[0] in marks]
    text = "\n".join(lines[index][1:] for index in indices)
    ends = list[int]()
    for index in indices:
        ends.append((ends[-1] + 1 if ends else 0) + len(lines[index]) - 1)
    secret_indices = set[int]()
    spans = [*secrets.find(text), *(match.span() for pattern in (ASSIGNED, BARE) for match in pattern.finditer(text))]
    for begin, end in spans:
        secret_indices |= {
            index
            for index, last, first in zip(indices, ends, [0, *(last_end + 1 for last_end in ends[:-1])], strict=True)
            if first < end and begin <= last
        }
    return sorted(secret_indices)
