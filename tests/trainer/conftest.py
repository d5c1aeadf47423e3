"""What the trainer's tests stand on: a tiny snapshot that can be learnt, and trainings as real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from slipway.trainer.base import atomic, journal
from slipway.trainer.config import resolved as configuration
from slipway.trainer.data import shards
from slipway.trainer.record import fence, ledger
from tests.conftest import PATIENCE_SECONDS, Marked, until

CODE = Path(__file__).parents[2]
VOCAB = 64
LENGTH = 32
STEPS = 20
EVERY = 5
MARK = "SLIPWAY_TEST"

Sections = dict[str, dict[str, Any]]


def make_snapshot(durable: Path) -> shards.TextSnapshot:
    """Three training shards and one for validation; four of five tokens follow from the one before."""
    random = np.random.default_rng(7)

    def document(tokens: int) -> np.ndarray[Any, Any]:
        noise = random.random(tokens) < 0.2
        out = random.integers(0, VOCAB - 1, tokens, np.uint16)
        for at in range(1, tokens):
            if not noise[at]:
                out[at] = (out[at - 1] * 5 + 3) % (VOCAB - 1)
        return out

    def split(*lengths: int) -> shards.TokenSplit:
        written = [shards.write_shard(durable, [document(n // 2), document(n - n // 2)], "uint16") for n in lengths]
        return shards.TokenSplit(2 * len(lengths), sum(lengths), 3 * sum(lengths), tuple(written))

    snapshot = shards.TextSnapshot(
        dataset="tiny",
        recipe="0" * 64,
        source={"kind": "random"},
        documents={},
        tokenizer=shards.TokenizerRecord("0" * 64, VOCAB, VOCAB - 1),
        dtype="uint16",
        splits={"train": split(1500, 700, 333), "validation": split(500)},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def settings(**changed: dict[str, Any]) -> Sections:
    """The sections of a tiny training: 20 steps over an uneven batch, a checkpoint every 5 and none by the clock."""
    sections: Sections = {
        "model": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 64},
        "batch": {"sequences": 7, "length": LENGTH, "micro": 2},
        "optimizer": {"learning_rate": 0.01, "warmup_steps": 2},
        "run": {"steps": STEPS, "seed": 3},
        "checkpoint": {"every": EVERY},
        "validation": {"every": 10, "sequences": 5},
        "storage": {"nvme": {"minutes": 0, "last": 1}},
    }
    if "kind" in changed.get("model", {}):
        sections["model"] = {}
    return {name: {**sections.get(name, {}), **changed.get(name, {})} for name in {**sections, **changed}}


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """A valid configuration as JSON; nothing of what it names is there."""
    placement = {"store": str(tmp_path / "store"), "durable": str(tmp_path / "durable"), "nvme": str(tmp_path / "nvme")}
    named = {"format": configuration.FORMAT, "training": "tiny", "snapshot": "0" * 64}
    return {**named, **settings(), "placement": placement}


@dataclass(frozen=True)
class Ended:
    """How a process ended and what it said."""

    code: int
    out: str
    err: str


class Training:
    """One training in a folder of its own, started as real processes."""

    def __init__(
        self,
        folder: Path,
        mark: str,
        make: Callable[[Path], Any] = make_snapshot,
        **changed: dict[str, Any],
    ) -> None:
        self.folder, self.mark, self._marked = folder, mark, Marked({MARK: mark})
        self.store, self.durable, self.config = folder / "store", folder / "durable", folder / "config.json"
        self.nvme = folder / "nvme-local"
        self.snapshot: shards.TextSnapshot = make(self.durable)
        self.configure(**changed)

    def configure(self, **changed: dict[str, Any]) -> None:
        """Write its configuration: the default settings with what is given changed in each section."""
        folders = {"store": str(self.store), "durable": str(self.durable), "nvme": str(self.folder / "nvme-{node}")}
        named = {"format": configuration.FORMAT, "training": "tiny", "snapshot": self.snapshot.sha256}
        placement = {**folders, **changed.get("placement", {})}
        self.config.write_bytes(atomic.readable_json({**named, **settings(**changed), "placement": placement}))

    def start(self, ranks: int = 1, freeze: str = "", **environment: str) -> subprocess.Popen[str]:
        """Start it by hand, as one process or under torchrun; `freeze` gives the steps of `tests.trainer.frozen`."""
        agent = ["torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "-m"]
        module = ["tests.trainer.frozen", freeze] if freeze else ["slipway.trainer"]
        return self.spawn(*(agent if ranks > 1 else []), *module, str(self.config), **environment)

    def until_frozen(self) -> None:
        until(self._marked.frozen, "the training to freeze")

    def until_gone(self) -> None:
        """Wait until none of its processes is left."""
        self._marked.until_gone()

    def thaw(self) -> None:
        for pid in self._marked.frozen():
            os.kill(pid, signal.SIGCONT)

    def spawn(self, *module: str, **environment: str) -> subprocess.Popen[str]:
        """Start ``python -m module ...`` with pipes, bound to this process and marked as the tests' own."""
        return subprocess.Popen(
            [sys.executable, "-m", *module],
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of its processes."""
        own = {"PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **own, MARK: self.mark, **more}

    def run(self, ranks: int = 1, **environment: str) -> Ended:
        """Start it and wait for its end."""
        return wait(self.start(ranks, **environment))

    def completed(self, ranks: int = 1) -> "Training":
        """Run it to its last step."""
        ended = self.run(ranks)
        assert ended.code == 0, ended.err
        return self

    def interrupted(self, step: int, ranks: int = 1, saved: int | None = None) -> "Training":
        """Run it until it freezes after this step; end it and its ranks by SIGKILL once what it saved is committed.

        `saved` is the step of its newest checkpoint then, 0 for none; by default the last that was due.
        """
        process = self.start(ranks, freeze=str(step))
        self.until_frozen()
        every = read_json(self.config)["checkpoint"]["every"]
        saved = (step - 1) // every * every if saved is None else saved
        until(lambda: saved in [0, *(commit.step for commit in self.commits())], "the last commit")
        process.kill()
        wait(process)
        self._marked.until_gone()
        return self

    def commits(self) -> list[fence.Commit]:
        return fence.commits(self.store)

    def events(self, name: str) -> list[journal.JournalEvent]:
        return [event for event in ledger.read(self.store) if event["event"] == name]

    def losses(self) -> list[tuple[int, float]]:
        return ledger.loss_curve(ledger.read(self.store))

    def checkpoint_file(self, name: str, step: int = STEPS) -> Path:
        commit = next(commit for commit in self.commits() if commit.step == step)
        return self.durable / commit.folder / name

    def tensors(self, step: int = STEPS) -> tuple[bytes, bytes]:
        """The bytes of the weights and of the optimiser's state, of all ranks."""
        folder = self.checkpoint_file(".", step)
        model, optimizer = (sorted(folder.glob(f"{name}-*.safetensors")) for name in ("model", "optimizer"))
        return b"".join(path.read_bytes() for path in model), b"".join(path.read_bytes() for path in optimizer)

    def tensors_by_name(self, step: int = STEPS) -> dict[str, bytes]:
        """All that a checkpoint of undivided tensors holds, whichever rank has written what."""
        files = self.checkpoint_file(".", step).glob("*.safetensors")
        return {name: tensor.tobytes() for path in files for name, tensor in load_file(path).items()}


def line_with(process: subprocess.Popen[str], text: str) -> str:
    """Read what the process prints up to the line with `text`; that line."""
    out: IO[str] | None = process.stdout
    assert out is not None
    for line in out:
        if text in line:
            return line
    raise AssertionError(f"ended without saying {text!r}: {wait(process).err}")


def wait(process: subprocess.Popen[str]) -> Ended:
    """Wait for the process to end; one that does not is killed."""
    try:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


@pytest.fixture(scope="session")
def mark() -> str:
    """What marks every process that these tests start, directly or not."""
    return uuid.uuid4().hex


@pytest.fixture(autouse=True)
def nothing_left(mark: str) -> Iterator[None]:
    """At a test's end, no process of its own may be left. What is left all the same is ended here."""
    yield
    Marked({MARK: mark}).must_be_gone()


@pytest.fixture
def training(tmp_path: Path, mark: str) -> Training:
    """A training that has not been started."""
    return Training(tmp_path, mark)


@pytest.fixture
def another(tmp_path: Path, mark: str) -> Callable[..., Training]:
    """Makes a second training with the settings given."""
    return lambda **changed: Training(tmp_path / "another", mark, **changed)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A training that one process took to its end without interruption. Read only."""
    return Training(tmp_path_factory.mktemp("finished"), mark).completed()


@pytest.fixture
def copy_of_finished(training: Training, finished: Training) -> Training:
    """The finished training once more, in a place of its own, to do something to."""
    for original, copy in ((finished.store, training.store), (finished.durable, training.durable)):
        shutil.copytree(original, copy, dirs_exist_ok=True)
    return training


@pytest.fixture(scope="session")
def finished_by_two(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """The same training, by two ranks. Read only."""
    return Training(tmp_path_factory.mktemp("finished-by-two"), mark).completed(ranks=2)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())
