"""Trainings in scripts of one's own: any loop that goes through `training` is started, fenced and recovered as ours.

    with script.training() as training:
        state = training.restored                       # the newest good checkpoint, None at first
        for step in training.steps(1000):               # the steps that are left
            ...
            training.report(loss, accuracy=accuracy)    # once in each step, on every rank
            if training.due(every=50):
                training.commit({"model.safetensors": data}, validation_loss=measured)

It imports no framework, and asks the ranks to exchange nothing: where they must agree, rank 0 decides and the others
read it in the training's folder. Exit codes are those of `python -m trainer`.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer import atomic, config, fence, incarnation, leases, shards, snapshots, staging
from trainer.__main__ import FAILED, SUPERSEDED, UNUSABLE
from trainer.account import Account
from trainer.agreement import NEVER, Agreement
from trainer.checkpoint import format
from trainer.operation import Placement
from trainer.processes import StopRequest, bind_to_launcher
from trainer.scores import Diverged, finite

FORMAT = "slipway.script-config/1"
LAYOUT = "script/1"
"""Of a script's checkpoints: its own files, and `progress.json`."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """What runs."""

    command: tuple[str, ...]
    code: str
    """Digest of the folder that it runs in."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration of a script's training, resolved; one JSON file holds it."""

    training: str
    """The training's id."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    script: Source
    parameters: dict[str, Any]
    placement: Placement


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint, every byte of it verified."""

    step: int
    files: Mapping[str, bytes]
    metrics: Mapping[str, float]


class Parameters(dict[str, Any]):
    """The recipe's parameters by name."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"parameters.{name}: found nothing; the recipe has {', '.join(self) or 'none'}")


class Training:
    """One training on one rank, in one incarnation."""

    def __init__(self, settings: Settings) -> None:
        """Claim or find the token, stage the snapshot, and restore.

        Raises ValueError for what cannot be trained, fence.Superseded, and what staging raises.
        """
        self.parameters = Parameters(settings.parameters)
        self.rank, self.local_rank, self.world_size = (
            _place("RANK", 0),
            _place("LOCAL_RANK", 0),
            _place("WORLD_SIZE", 1),
        )
        self.step = 0
        """The steps done."""
        self._settings, self._stop, self._total = settings, StopRequest(), NEVER
        self._figures: dict[str, float] = {}
        self._begun = time.perf_counter()
        self._store, self._durable = Path(settings.placement.store), Path(settings.placement.durable)
        self._token = self._find_token()
        self._agreement = Agreement(self._store, self._token, self.rank, self.world_size)
        self._account = Account(self._store, self._token, self.rank)
        self.tier = Path(settings.placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))
        """The node's NVMe, where the snapshot's shards are."""
        self.snapshot = self._stage()
        self._account.record("started", world=self.world_size, command=list(settings.script.command))
        self.restored = self._restore()
        """What to go on from; None for a training that begins."""

    @property
    def text(self) -> shards.Snapshot:
        """The snapshot, of texts. Raises ValueError when it is one of images."""
        if not isinstance(self.snapshot, shards.Snapshot):
            raise ValueError(f"found a snapshot of images ({self.snapshot.dataset}), expected one of texts")
        return self.snapshot

    def shards(self, split: str) -> list[Path]:
        """The files of a split's shards, staged on this node and verified."""
        return [shards.shard_path(self.tier, shard) for shard in self.snapshot.splits[split].shards]

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left, the last one `total`; fewer when the training is asked to stop.

        Raises ValueError when a step was not reported, or reported twice.
        """
        self._total = total
        while self.step < total and not self.stopping:
            step = self.step + 1
            self._begun = time.perf_counter()
            yield step
            if self.step != step:
                raise ValueError(
                    f"step {step}: found {self.step - step + 1} calls of report, expected one in each step"
                )

    def report(self, loss: float, **figures: float) -> None:
        """Say that a step is done. Every rank does; the ledger has what rank 0 says.

        Raises Diverged, the end of the incarnation, for a loss or a figure that is not a finite number.
        """
        self.step += 1
        self._figures = self._checked({"loss": loss, **figures})
        self._account.beat("training", self.step)
        seconds = time.perf_counter() - self._begun
        own = {name: value for name, value in self._figures.items() if name != "loss"}
        self._account.record("step", step=self.step, loss=self._figures["loss"], seconds=seconds, figures=own)
        if self.rank == 0:
            print(f"step {self.step}/{self._total} loss {self._figures['loss']:.4f}", flush=True)
        self._agreement.after_step(self.step, bool(self._stop))

    @property
    def stopping(self) -> bool:
        """Whether the step reported last is the last one, because the training was asked to stop."""
        return self.step >= self._agreement.last

    def due(self, every: int) -> bool:
        """Whether a checkpoint is due after the step reported last: each `every` steps, and at the last one."""
        return self.step % every == 0 or self.step == self._total or self.stopping

    def commit(self, files: Mapping[str, bytes | Path], **metrics: float) -> None:
        """Commit a checkpoint of the step reported last, with the step's figures and these metrics; rank 0 does.

        A full disk is an event in the ledger, not the end of the run. Raises fence.Superseded, ValueError for the name
        of a file, and OSError for a file that cannot be read.
        """
        if self.rank != 0:
            return
        self._account.beat("committing", self.step)
        measured = self._checked(metrics)
        if "validation_loss" in measured:
            self._account.record("validated", step=self.step, loss=measured["validation_loss"])
        contents = {
            _named(name): given if isinstance(given, bytes) else given.read_bytes() for name, given in files.items()
        }
        self._write({**self._figures, **measured}, contents)

    def finish(self) -> None:
        """The end of a loop that was left as it should be. Raises SystemExit when its last step is not committed."""
        if self.rank != 0:
            return
        if self.step < self._total and (self.stopping or self._stop):
            self._account.record("ended", outcome="stopped", step=self.step, reason="asked to stop")
            print("trainer: stopped", flush=True)
            return
        committed = fence.commits(self._store)
        if not committed or committed[-1].step != self.step:
            raise SystemExit(f"trainer: the last step ({self.step}) is not committed")
        self._account.record_end("succeeded", "all steps done", self.step)
        print("trainer: succeeded", flush=True)

    def fail(self, reason: str) -> None:
        """Record an end that starting again from here would not change."""
        self._account.record_end("failed", reason, self.step)

    def _find_token(self) -> fence.Token:
        given = incarnation.given()
        if self.world_size > 1 and given is None:
            raise ValueError(f"found no {incarnation.VARIABLE}, expected the launcher's where there are several ranks")
        if self.rank == 0:
            return incarnation.claimed(self._store)
        assert given is not None
        return given

    def _stage(self) -> snapshots.Snapshot:
        """Every rank stages: they share the work, and what is in place already is found in milliseconds."""
        self._account.beat("staging", 0)
        self._lease = leases.hold(self.tier, self._settings.snapshot)
        staging.stage(self._settings.snapshot, self._settings.placement.durable, self.tier)
        return snapshots.read(self.tier, self._settings.snapshot)

    def _restore(self) -> Checkpoint | None:
        self._account.beat("restoring", 0)
        begun = time.time()
        found = self._newest_good() if self.rank == 0 else self._found_by_rank_0()
        if found is None:
            return None
        commit, files = found
        self.step, self._figures = commit.step, dict(commit.metrics)
        self._account.record("restored", step=self.step, commit=commit.name, seconds=time.time() - begun)
        own = {name: data for name, data in files.items() if name != format.PROGRESS}
        return Checkpoint(commit.step, own, commit.metrics)

    def _newest_good(self) -> tuple[fence.Commit, dict[str, bytes]] | None:
        format.sweep(self._durable / self._checkpoints)
        found = next(self._good(), None)
        self._agreement.decide_start(found[0].name if found else None)
        return found

    def _good(self) -> Iterator[tuple[fence.Commit, dict[str, bytes]]]:
        """The commits that verify, the newest first; a damaged one on the way is set aside."""
        for commit in reversed(fence.commits(self._store)):
            try:
                yield commit, format.read(self._durable / commit.folder, commit.manifest)
            except format.Damaged as damage:
                fence.set_aside(self._store, commit, str(damage))
                self._on_damaged(commit, str(damage))

    def _found_by_rank_0(self) -> tuple[fence.Commit, dict[str, bytes]] | None:
        name = self._agreement.start()
        if name is None:
            return None
        commit = next(commit for commit in fence.commits(self._store) if commit.name == name)
        return commit, format.read(self._durable / commit.folder, commit.manifest)

    @property
    def _checkpoints(self) -> str:
        return f"checkpoints/{self._settings.training}"

    def _write(self, metrics: Mapping[str, float], contents: Mapping[str, bytes]) -> None:
        begun, folder = time.time(), f"{self._checkpoints}/{self.step:09d}.{self._token}"
        files = {**contents, format.PROGRESS: atomic.readable_json(self._progress(metrics))}
        try:
            manifest = format.write(self._durable / folder, LAYOUT, files)
            commit = fence.Commit(self.step, self._token, folder, manifest, metrics, time.time())
            fence.commit(self._store, commit)
        except OSError as error:
            self._account.record("commit_failed", step=self.step, reason=str(error))
            return
        size = sum(map(len, files.values()))
        self._account.record("committed", step=self.step, commit=commit.name, seconds=time.time() - begun, bytes=size)

    def _progress(self, metrics: Mapping[str, float]) -> dict[str, Any]:
        lineage = {"snapshot": self._settings.snapshot, "revision": os.environ.get("SLIPWAY_REVISION", "")}
        settings = {"format": FORMAT, **asdict(self._settings)}
        return {"step": self.step, "metrics": metrics, "config": settings, "lineage": lineage, "at": time.time()}

    def _checked(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {name: finite(f"{name} of step {self.step}", float(value)) for name, value in figures.items()}

    def _on_damaged(self, commit: fence.Commit, reason: str) -> None:
        self._account.record("set_aside", commit=commit.name, reason=reason)


@contextlib.contextmanager
def training(path: str | Path | None = None) -> Iterator[Training]:
    """The training that a configuration describes, by default the file that is the last argument of the command.

    Leaving the block ends it: it has succeeded when its last step is committed. Raises SystemExit, with one line on
    standard error, for a configuration that cannot be trained (2), when superseded (3) and when diverged (1).
    """
    bind_to_launcher()
    try:
        current = Training(config.read(Path(path or sys.argv[-1]), Settings, FORMAT))
    except (fence.Superseded, format.Damaged, ValueError, OSError) as error:
        raise _left(error) from None
    try:
        yield current
        current.finish()
    except Diverged as error:
        current.fail(str(error))
        raise _left(error) from None
    except fence.Superseded as error:
        raise _left(error) from None
    except Exception as error:
        print(f"trainer: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr, flush=True)
        raise


def _left(error: Exception) -> SystemExit:
    """The end of the process, with what is said of it."""
    print(f"trainer: {error}", file=sys.stderr, flush=True)
    match error:
        case fence.Superseded():
            return SystemExit(SUPERSEDED)
        case ValueError():
            return SystemExit(UNUSABLE)
        case _:
            return SystemExit(FAILED)


def _named(name: str) -> str:
    """`name`, which is to be the name of a checkpoint's file. Raises ValueError when it cannot be."""
    if not name or "/" in name or name.startswith(".") or name in (format.MANIFEST, format.PROGRESS):
        raise ValueError(
            f"found a file {name!r}, expected a plain name other than {format.MANIFEST}, {format.PROGRESS}"
        )
    return name


def _place(variable: str, alone: int) -> int:
    """A number that torchrun and other launchers give each rank."""
    return int(os.environ.get(variable, alone))
