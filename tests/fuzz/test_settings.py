"""Fuzzing of what people write beside recipes: the platform's settings, and the files with secrets.

A reader gives a value or an error that names the file; and of a file with a secret no error shows the content, whatever
mark of order, line break or byte got into it.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slipway.recipes.problems import InvalidRecipes
from slipway.resources import credentials, platform, postgresql
from slipway.resources.errors import Unavailable
from slipway.resources.notify import endpoints
from slipway.resources.openlineage.target import OpenLineage
from slipway.resources.opentelemetry import target
from slipway.resources.opentelemetry.spans import TraceSpan
from slipway.trainer.checkpoint.disk import encryption
from tests.fuzz.test_readers import bytes_like

FEW = settings(max_examples=40, deadline=None)
MANY = settings(max_examples=2000, deadline=None)
SECRET = b"PLANTED-0fd2"
NOBODY = "http://127.0.0.1:9/"
"""Nothing listens there."""
SETTINGS = {
    "slipway": "platform/1",
    "revision": "3f2a9c1",
    "tiers": {"durable": "/mnt/durable", "nvme": "/mnt/nvme", "backup": "s3://checkpoints/slipway"},
    "tracking": {"uri": "http://slipway-mlflow:5000"},
    "user_header": "X-Forwarded-User",
    "operators": ["oda@x.example"],
    "prices": {"currency": "EUR", "on_demand": 3.2, "spot": 1.1},
    "teams": {"research": {"quota": {"rank_hours": 40000, "per": "month"}, "prices": {"on_demand": 2.8, "spot": 1.0}}},
    "notifications": {"urls_file": "/secrets/urls", "address": "https://slipway.example"},
    "openlineage": {"url": "http://marquez:5000/api/v1/lineage", "key_file": "/secrets/key"},
    "compute": {
        "launcher": "jobset",
        "cluster": {"image": "trainer", "node_selector": {"slipway/fleet": "h200"}, "resources": {"cpu": "8"}},
        "quarantine": {"apply": True, "share": 0.1, "hold_seconds": 600},
        "steps": {"most": {"cpu": "8"}, "needs": {"evaluation": {"memory": "64Gi"}}},
    },
}
SPOILT = st.lists(
    st.sampled_from([SECRET, b"\xef\xbb\xbf", b"\xff", b"://", *(bytes([number]) for number in b"\n\r \0@:[]=%#")])
    | st.binary(max_size=4),
    max_size=12,
).map(b"".join)
"""A secret among what an editor or a shell leaves beside it."""


def spans_with(file: Path) -> None:
    """The secret in the environment, as OpenTelemetry has it."""
    text = file.read_bytes().decode("latin-1").replace("\0", "")
    environ = {f"{target.PREFIX}ENDPOINT": NOBODY, f"{target.PREFIX}HEADERS": f"authorization={text}"}
    exporter = target.of(environ)
    assert exporter is not None
    exporter.send([TraceSpan("ab" * 16, "cd" * 8, "", "a step", 1.0, 2.0, {}, "")])


SECRETS: dict[str, Callable[[Path], Any]] = {
    "token of the webserver": credentials.token,
    "key of checkpoints": encryption.read_key,
    "address of MLflow": credentials.read_address,
    "addresses of notifications": lambda file: [repr(endpoint) + endpoint.name for endpoint in endpoints.read(file)],
    "services of PostgreSQL": lambda file: postgresql.sections({postgresql.SERVICE_FILE: str(file)}),
    "key of OpenLineage": lambda file: OpenLineage(url=NOBODY, key_file=str(file)).send({}),
    "headers of OpenTelemetry": spans_with,
}


def read_secret(name: str, data: bytes) -> None:
    """Whatever is raised shows the secret nowhere, neither in its words nor in what Python prints of it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "secret"
        file.write_bytes(data)
        try:
            SECRETS[name](file)
        except (ValueError, OSError, Unavailable) as error:
            message = f"{error} {error!r}"
            assert SECRET.decode() not in message, message
            named = (file, target.PREFIX) if isinstance(error, ValueError) else ("",)
            assert any(str(text_expected) in str(error) for text_expected in named), message


@pytest.mark.parametrize("name", SECRETS)
def test_no_error_shows_what_a_file_with_a_secret_holds(name: str):
    spoilt = (SECRET + b"\xff", SECRET + b"\nmore", SECRET + "\u2026".encode(), b"[" + SECRET, b"http://a:" + SECRET)
    check = FEW(given(SPOILT)(lambda data: read_secret(name, data)))
    for data in spoilt:
        check = example(data)(check)
    check()


@pytest.mark.nightly
@pytest.mark.parametrize("name", SECRETS)
def test_no_error_shows_what_a_file_with_a_secret_holds_for_thousands(name: str):
    MANY(given(SPOILT)(lambda data: read_secret(name, data)))()


def read_settings(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "platform.yaml"
        file.write_bytes(data)
        try:
            platform.load(file)
        except InvalidRecipes as refused:
            assert all(problem.location.file == str(file) and str(problem) for problem in refused.problems)


def test_the_platforms_settings_are_read_or_refused_with_their_file():
    FEW(given(bytes_like(SETTINGS))(read_settings))()


@pytest.mark.nightly
def test_the_platforms_settings_are_read_or_refused_with_their_file_for_thousands():
    MANY(given(bytes_like(SETTINGS))(read_settings))()


def test_what_was_damaged_is_what_would_be_read(tmp_path: Path):
    file = tmp_path / "platform.yaml"
    file.write_text(str(SETTINGS))
    assert platform.load(file).teams["research"].prices is not None
