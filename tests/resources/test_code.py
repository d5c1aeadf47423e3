"""What is recorded of a changed checkout: the code that runs, all of it, and no secret that lies beside it."""

import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from slipway.resources import code, code_difference
from slipway.resources.mlflow import artifacts
from slipway.trainer.base import digest

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAwq0\n" + "Ab3+/xZ9" * 8 + "\n-----END RSA PRIVATE KEY-----\n"
AWS = "AKIA" + "QWERTYUIOPASDFGH"
HUGGING_FACE = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3h"
MODEL = "from own.parts import layer\nimport own.lazy\n\nclass Network: ...\n"
ENVIRONMENT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a commit, whose recipe names a model of one's own that git does not know."""
    monkeypatch.delenv("SLIPWAY_REVISION", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    root = tmp_path / "checkout"
    _write(root, "trainer/run.py", "import slipway.trainer.loop\n\n\ndef run():\n    return 1\n")
    _write(root, "tests/test_run.py", "import tests.helper\n")
    _write(root, "recipes/trainings/mine.yaml", "model: {kind: own.model}\ncode: ../script\n")
    monkeypatch.setenv("SLIPWAY_RECIPES", str(root / "recipes"))
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "one"],
    ):
        _git(root, *command)
    return root


def _write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


def _recorded(checkout: Path, durable: Path) -> str:
    """What the durable tier has of this checkout."""
    running = code.revision(checkout)
    code.keep_difference(durable, running, checkout)
    path = code.difference_path(durable, running)
    assert running.endswith(f"+{digest.sha256(path.read_bytes())[:12]}"), "the revision names what is kept"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return path.read_text()


def test_of_files_that_git_does_not_know_only_those_that_run_are_recorded(checkout: Path, tmp_path: Path):
    """Named by a recipe or imported by what runs, by whatever way of importing; beside them nothing is."""
    runs = {
        "own/__init__.py": "",
        "own/model.py": MODEL,
        "own/parts.py": "from . import deeper\n",
        "own/deeper.py": "NAME = 'own.named'\n",
        "own/named.py": "A = 1\n",
        "own/lazy.py": "B = 2\n",
        "trainer/loop.py": "C = 3\n",
        "recipes/script/start.py": "import neighbour\n",
        "recipes/script/neighbor.py": "D = 4\n",
    }
    beside = ("own/unused.py", "tests/helper.py", "notes.py", "data.csv", "ui-token", ".env", "a b\nc", "own/model.txt")
    for name, text in runs.items():
        _write(checkout, name, text)
    for name in beside:
        _write(checkout, name, "UNTRACKEDSECRET\n")
    recorded = _recorded(checkout, tmp_path)
    assert {line.rpartition(" b/")[2] for line in recorded.splitlines() if line.startswith("diff --git")} == {*runs}
    assert "UNTRACKEDSECRET" not in recorded
    omissions = [line for line in recorded.splitlines() if line.startswith("# left out: ")]
    assert (
        len(omissions) == len(beside)
        and "# left out: .env: git does not know it, and nothing that runs imports it" in omissions
    )
    other = tmp_path / "other"
    _git(tmp_path, "clone", "-q", str(checkout), str(other))
    subprocess.run(["git", "apply", "-"], cwd=other, input=recorded, text=True, check=True)
    for name, text in runs.items():
        assert (other / name).read_text() == text


def test_a_checkout_whose_code_is_as_committed_has_the_revision_of_its_commit(checkout: Path, tmp_path: Path):
    for name in ("notes.txt", ".env", "unused.py"):
        _write(checkout, name, f"HF_TOKEN={HUGGING_FACE}\n")
    assert code.revision(checkout) == _git(checkout, "rev-parse", "HEAD").strip()
    assert code.difference(checkout) == code_difference.Difference(b"", ())


@pytest.mark.parametrize(
    "secret", [f"HF_TOKEN={HUGGING_FACE}\n", f"KEY = '{AWS}'\n", KEY, "API_KEY=only8chars\n", f"x = '{HUGGING_FACE}'\n"]
)
def test_a_secret_in_a_change_is_written_over_and_the_rest_is_recorded(checkout: Path, tmp_path: Path, secret: str):
    path = checkout / "trainer" / "run.py"
    path.write_text(path.read_text().replace("return 1", "return 2") + secret)
    recorded = _recorded(checkout, tmp_path)
    assert "+    return 2" in recorded and not set(secret.split()) & set(recorded.replace("+", " ").split()) - {
        "=",
        "x",
        "KEY",
    }
    lines = len(secret.splitlines())
    assert recorded.startswith(f"# left out: trainer/run.py: {lines} lines that look like a secret\n")
    _git(checkout, "stash", "-q")
    subprocess.run(["git", "apply", "-"], cwd=checkout, input=recorded, text=True, check=True)


def test_a_secret_in_an_imported_file_is_written_over(checkout: Path, tmp_path: Path):
    _write(checkout, "own/model.py", f"TOKEN = '{HUGGING_FACE}'\nA = 1\n")
    recorded = _recorded(checkout, tmp_path)
    assert HUGGING_FACE not in recorded and "+A = 1" in recorded
    assert "# left out: own/model.py: 1 lines that look like a secret" in recorded


def test_a_secret_that_stood_beside_a_change_leaves_no_line_of_its_hunk(checkout: Path, tmp_path: Path):
    _write(checkout, "trainer/key.py", f"A = 1\nTOKEN = '{HUGGING_FACE}'\n")
    _git(checkout, "add", ".")
    _git(checkout, "-c", "user.name=a", "-c", "user.email=a@x", "commit", "-qm", "two")
    _write(checkout, "trainer/key.py", f"A = 2\nTOKEN = '{HUGGING_FACE}'\n")
    _write(checkout, "trainer/run.py", "B = 2\n")
    recorded = _recorded(checkout, tmp_path)
    assert HUGGING_FACE not in recorded and "+B = 2" in recorded
    assert recorded.startswith("# left out: trainer/key.py: 1 hunks beside what looks like a secret\n")


@pytest.mark.parametrize("name", [".env", "deploy/tls.pem", "id_rsa", "ui-token", "notifications.urls", "secrets.yaml"])
def test_a_file_with_the_name_of_a_secret_is_left_out_also_where_git_knows_it(
    checkout: Path, tmp_path: Path, name: str
):
    _write(checkout, name, "PLANTED\n")
    _write(checkout, "trainer/run.py", "B = 2\n")
    _git(checkout, "add", ".")
    recorded = _recorded(checkout, tmp_path)
    assert "PLANTED" not in recorded and f"# left out: {name}: its name suggests a file with secrets\n" in recorded


def test_code_about_tokens_is_recorded(checkout: Path, tmp_path: Path):
    text = "TOKEN = 'SLIPWAY_TOKEN_FILE'\nPASSWORD = None\ntoken_of_step = sha256(commit)[:12]\n"
    for name in ("trainer/tokens.py", "docs/tokens.md", "trainer/tokenizer.json"):
        _write(checkout, name, text)
    _git(checkout, "add", ".")
    recorded = _recorded(checkout, tmp_path)
    assert recorded.count("+TOKEN = 'SLIPWAY_TOKEN_FILE'") == 3 and "left out" not in recorded


def test_a_checkout_of_any_settings_of_git_and_any_names_is_recorded(checkout: Path, tmp_path: Path):
    for setting in ("diff.noprefix", "diff.mnemonicPrefix", "color.ui"):
        _git(checkout, "config", setting, "always" if setting == "color.ui" else "true")
    _write(checkout, "trainer/grün und blau.py", "A = 1\n")
    (checkout / "trainer" / "weights.bin").write_bytes(os.urandom(3000))
    _git(checkout, "add", ".")
    contents = {name: (checkout / "trainer" / name).read_bytes() for name in ("grün und blau.py", "weights.bin")}
    recorded = _recorded(checkout, tmp_path)
    _git(checkout, "reset", "-q", "--hard")
    subprocess.run(["git", "apply", "-"], cwd=checkout, input=recorded, text=True, check=True)
    assert {name: (checkout / "trainer" / name).read_bytes() for name in contents} == contents


def test_a_pipe_among_the_files_is_never_opened(checkout: Path):
    (checkout / "own").mkdir()
    os.mkfifo(checkout / "own" / "model.py")
    os.mkfifo(checkout / "pipe")
    assert code.difference(checkout).data == b""


def test_what_an_earlier_release_kept_comes_to_mlflow_without_its_secrets(tmp_path: Path):
    old = "diff --git a/.env b/.env\nnew file mode 100644\n--- /dev/null\n+++ b/.env\n@@ -0,0 +1 @@\n+PLANTED\n"
    old += "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1,2 @@\n A = 1\n" + f"+K = '{AWS}'\n"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "1+2.diff").write_text(old)
    sent: dict[str, str] = {}
    client = SimpleNamespace(
        log_artifact=lambda run, path, folder: sent.update({Path(path).name: Path(path).read_text()})
    )
    artifacts._deliver_code(client, "run", tmp_path / "code" / "1+2.diff")
    assert "PLANTED" not in sent["1+2.diff"] and AWS not in sent["1+2.diff"] and " A = 1" in sent["1+2.diff"]
