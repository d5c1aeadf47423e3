"""Secret lines: find what looks like a secret in a git difference, by the name and the content of each file.

An added line is overwritten, and the difference still applies. Context and removed lines cannot be overwritten without
breaking the difference, so their hunk is left out.
"""

import re
from fnmatch import fnmatch
from pathlib import PurePosixPath

from slipway.trainer.base import secrets

NAMES = (".env", ".env.*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.urls",
         "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", "pg_service.conf",
         ".htpasswd", ".git-credentials", ".npmrc", ".pypirc", "kubeconfig*", "*token*", "*secret*", "*credential*",
         "*passw*", "*apikey*", "*api_key*", "*api-key*")  # fmt: skip
"""Name patterns of files that usually hold secrets."""
CODE = (".py", ".pyi", ".md", ".html", ".css", ".js", ".ts", ".tpl", ".sh", ".rst")
"""Files with these endings are judged by their content only: a name such as tokens.py describes a topic."""
NO_SECRET = re.compile(r"tokeni[sz]", re.IGNORECASE)
ASSIGNED = re.compile(
    r"(?m)^\s*(?:export\s+)?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?)[A-Z0-9_]*"
    r"\s*[=:]\s*[\"']?(?=[^\s\"']*[0-9])[^\s\"'{}()\[\]<>$,]{8,}"
)
"""A variable as shells and `.env` files set it. The value must have a digit, unlike the names of other variables."""
BARE = re.compile(r"(?m)^[A-Za-z0-9+/]{60,}={0,2}$")
"""A line of a key, even if the key's first line is elsewhere."""
OVER = "[left out: it looks like a secret]"
_HUNK = re.compile(rb"(?m)^@@ ")


def is_secret_name(path: str) -> bool:
    """Whether the name of a file suggests that it holds secrets."""
    name = PurePosixPath(path).name.lower()
    return not name.endswith(CODE) and not NO_SECRET.search(name) and any(fnmatch(name, pattern) for pattern in NAMES)


def of_section(path: str, section: bytes) -> tuple[bytes, str]:
    """A file's section of a difference without what looks like a secret, and a note of what is missing, or ""."""
    if is_secret_name(path):
        return b"", "its name suggests a file with secrets"
    starts = [match.start() for match in _HUNK.finditer(section)]
    if not starts:
        return section, ""
    bounds = zip(starts, [*starts[1:], len(section)], strict=True)
    hunks = list[bytes]()
    added = 0
    dropped = 0
    for begin, end in bounds:
        hunk, count = _clean(section[begin:end].decode(errors="surrogateescape"))
        if count < 0:
            dropped += 1
        else:
            added += count
            hunks.append(hunk.encode(errors="surrogateescape"))
    omissions = list[str]()
    if added:
        omissions.append(f"{added} lines that look like a secret")
    if dropped:
        omissions.append(f"{dropped} hunks beside what looks like a secret")
    if hunks:
        hunks.insert(0, section[: starts[0]])
    return b"".join(hunks), ", ".join(omissions)


def _clean(hunk: str) -> tuple[str, int]:
    """A hunk with its added secrets overwritten, and the number of these lines; -1 if the hunk must be left out."""
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
    """The indices of the lines that start with one of `marks` and contain what looks like a secret."""
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
