"""One training by a script, on one rank and in one incarnation: the interface for its loop, and the process's end."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from slipway.trainer.base import console, regular_file
from slipway.trainer.base.processes import ExitCode, StopRequest, bind_to_launcher
from slipway.trainer.base.progress import BYTE_COUNT
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.config import resolved
from slipway.trainer.data import shards, snapshots
from slipway.trainer.diagnosis import stacks
from slipway.trainer.record import causes, fence, incarnation, phases, rank_exit
from slipway.trainer.record.agreement import NEVER, Agreement
from slipway.trainer.record.recorder import BY_SIGNAL, RankRecorder
from slipway.trainer.record.scores import Diverged, require_finite
from slipway.trainer.script.checkpoints import RestoredCheckpoint, ScriptCheckpoints, file_name
from slipway.trainer.script.settings import FORMAT, Parameters, ScriptSettings
from slipway.trainer.script.shards import ScriptShards


class ScriptTraining:
    """One training on one rank, in one incarnation."""

    def __init__(self, settings: ScriptSettings) -> None:
        """Claim or find the token, stage the snapshot, and restore.

        Raises ValueError for settings that cannot be trained, fence.Superseded, and the errors of staging.
        """
        self.parameters = Parameters(settings.parameters)
        self.rank = _number("RANK", 0)
        self.local_rank = _number("LOCAL_RANK", 0)
        self.world_size = _number("WORLD_SIZE", 1)
        self.step = 0
        """The steps done."""
        self._settings = settings
        self._stop = StopRequest()
        self._total = NEVER
        self._figures: dict[str, float] = {}
        self._begun = time.perf_counter()
        store = Path(settings.placement.store)
        token = self._find_token(store)
        self._checkpoints = ScriptCheckpoints(settings, token)
        self._agreement = Agreement(store, token, self.rank, self.world_size)
        self._recorder = RankRecorder(store, token, self.rank)
        self.tier = Path(settings.placement.nvme.format(node=node_name()))
        """The node's NVMe, where the snapshot's shards are."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._recorder.close)
            self.snapshot = self._stage()
            self._recorder.record("started", world=self.world_size, command=list(settings.script.command))
            self.restored = self._restore()
            """The checkpoint to continue from; None for a training that begins."""
            stack.pop_all()

    @property
    def text(self) -> shards.TextSnapshot:
        """The snapshot, if it is one of texts. Raises ValueError for a snapshot of images."""
        if not isinstance(self.snapshot, shards.TextSnapshot):
            raise ValueError(f"found a snapshot of images ({self.snapshot.dataset}), expected one of texts")
        return self.snapshot

    def shards(self, split: str) -> list[Path]:
        """The files of a split's shards, staged on this node and verified.

        Raises ValueError if the node has no room for all: use `moving` then.
        """
        return self._shards.files(split)

    def moving(self, split: str, order: Iterable[int]) -> Iterator[Path]:
        """The verified file of each shard in `order`, by its number in the split; it stays until the next is requested.

        It works for a snapshot of any size: on a node without room for all, a shard is brought ahead of its turn and
        removed behind it. `order` is this rank's own, and may repeat numbers, over several epochs for example.
        """
        return self._shards.moving(split, order)

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left, up to `total`; it ends early when the training is asked to stop.

        Raises ValueError if a step was not reported, or reported twice.
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
        """Report that a step is done. Every rank calls it; the ledger has the figures of rank 0.

        Raises Diverged, which ends the incarnation, for a loss or a figure that is not a finite number.
        """
        self.step += 1
        self._figures = self._checked({"loss": loss, **figures})
        self._recorder.enter(phases.TRAINING, self.step)
        seconds = time.perf_counter() - self._begun
        own = {name: value for name, value in self._figures.items() if name != "loss"}
        self._recorder.record("step", step=self.step, loss=self._figures["loss"], seconds=seconds, figures=own)
        if self.rank == 0:
            console.say(f"step {self.step}/{self._total} loss {self._figures['loss']:.4f}")
        self._agreement.after_step(self.step, bool(self._stop))

    @property
    def stopping(self) -> bool:
        """Whether the step reported last is the last one, because the training was asked to stop."""
        return self.step >= self._agreement.last

    def due(self, every: int) -> bool:
        """Whether a checkpoint is due after the step reported last: each `every` steps, and at the last one."""
        return self.step % every == 0 or self.step == self._total or self.stopping

    def commit(self, files: Mapping[str, bytes | Path], **metrics: float) -> None:
        """Commit a checkpoint of the step reported last, with the step's figures and these metrics. Rank 0 writes it.

        A full disk is an event in the ledger, not the end of the run. Raises fence.Superseded, ValueError for a name
        that a file cannot have, and OSError for a file that cannot be read.
        """
        if self.rank != 0:
            return
        self._recorder.enter(phases.SAVING, self.step, BYTE_COUNT)
        measured = self._checked(metrics)
        if "validation_loss" in measured:
            self._recorder.record("validated", step=self.step, loss=measured["validation_loss"])
        contents = {file_name(name): _bytes_of(content) for name, content in files.items()}
        self._write({**self._figures, **measured}, contents)

    def finish(self) -> None:
        """Record the end of a loop that was left without an error.

        Raises SystemExit if its last step is not committed.
        """
        if self.step < self._total and (self.stopping or self._stop):
            self._recorder.record_stop(self.step, BY_SIGNAL if self._stop else "")
            if self.rank == 0:
                console.say("trainer: stopped")
            return
        if self.rank != 0:
            return
        if not self._checkpoints.has_step(self.step):
            raise SystemExit(f"trainer: the last step ({self.step}) is not committed")
        self._recorder.record_end("succeeded", causes.DONE, "all steps done", self.step)
        console.say("trainer: succeeded")

    def fail(self, reason: str) -> None:
        """Record a failure that a new start would repeat."""
        self._recorder.record_end("failed", causes.DIVERGED, reason, self.step)

    def close(self) -> None:
        """Wait, for half a minute at most, until all records are written."""
        self._recorder.close()

    def _find_token(self, store: Path) -> fence.Token:
        environment_token = incarnation.from_environment()
        if self.world_size > 1 and environment_token is None:
            raise ValueError(f"found no {incarnation.VARIABLE}, expected the launcher's where there are several ranks")
        if self.rank == 0:
            return incarnation.claimed(store)
        return incarnation.joined(store)

    def _stage(self) -> snapshots.Snapshot:
        """The snapshot, staged as far as the node has room for it.

        Every rank stages: they share the work, and detect a staged snapshot in milliseconds.
        """
        self._recorder.enter(phases.STAGING, 0, BYTE_COUNT)
        ranks = _number("LOCAL_WORLD_SIZE", 1)
        self._shards = ScriptShards(self._settings.placement, self._settings.snapshot, node_name(), ranks)
        holding = self._shards.holding
        self._recorder.record("staging", kind=holding.kind, why=holding.why)
        return self._shards.snapshot

    def _restore(self) -> RestoredCheckpoint | None:
        self._recorder.enter(phases.RESTORING, 0, BYTE_COUNT)
        begun = time.time()
        if self.rank == 0:
            newest = self._checkpoints.newest_good(self._on_damaged, self._on_away)
            self._agreement.decide_start(newest[0].name if newest else None)
        else:
            name = self._agreement.start()
            newest = self._checkpoints.named(name) if name else None
        if newest is None:
            return None
        commit, restored = newest
        self.step = commit.step
        self._figures = dict(commit.metrics)
        self._recorder.record("restored", step=self.step, commit=commit.name, seconds=time.time() - begun)
        return restored

    def _write(self, metrics: Mapping[str, float], contents: Mapping[str, bytes]) -> None:
        begun = time.time()
        try:
            commit, size = self._checkpoints.write(self.step, metrics, contents)
        except OSError as error:
            self._recorder.record("commit_failed", step=self.step, reason=str(error))
            return
        self._recorder.record("committed", step=self.step, commit=commit.name, seconds=time.time() - begun, bytes=size)

    def _checked(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {name: require_finite(f"{name} of step {self.step}", float(value)) for name, value in figures.items()}

    def _on_damaged(self, commit: fence.Commit, reason: str) -> None:
        self._recorder.record("set_aside", commit=commit.name, reason=reason)

    def _on_away(self, reason: str) -> None:
        self._recorder.enter(phases.RESTORING, 0, BYTE_COUNT)
        self._recorder.record("tier_away", reason=reason)
        console.warn(f"trainer: waiting: {reason}")


@contextlib.contextmanager
def training(path: str | Path | None = None) -> Iterator[ScriptTraining]:
    """The training that a configuration describes, by default the file that is the last argument of the command.

    Leaving the block ends it: it has succeeded when its last step is committed. Raises SystemExit, with one line on
    standard error, for a configuration that cannot be trained (2), when superseded (3) and when diverged (1).
    """
    bind_to_launcher()
    stacks.open_file()
    try:
        settings = resolved.read(Path(path or sys.argv[-1]), ScriptSettings, FORMAT)
    except ValueError as error:
        raise _exit_for(error) from None
    with rank_exit.noted(Path(settings.placement.store)):
        yield from _trained(settings)


def _trained(settings: ScriptSettings) -> Iterator[ScriptTraining]:
    try:
        current = ScriptTraining(settings)
    except (fence.Superseded, DamagedCheckpoint, ValueError, OSError) as error:
        raise _exit_for(error) from None
    try:
        yield current
        current.finish()
    except Diverged as error:
        current.fail(str(error))
        raise _exit_for(error) from None
    except fence.Superseded as error:
        raise _exit_for(error) from None
    except Exception as error:
        console.warn(f"trainer: {type(error).__name__}: {error}".splitlines()[0])
        raise
    finally:
        current.close()


def _exit_for(error: Exception) -> SystemExit:
    """The end of the process, with its exit code; the reason goes to standard error."""
    console.warn(f"trainer: {error}")
    match error:
        case fence.Superseded():
            return SystemExit(ExitCode.SUPERSEDED)
        case ValueError() if not isinstance(error, causes.Failure):
            return SystemExit(ExitCode.UNUSABLE)
        case _:
            return SystemExit(ExitCode.FAILED)


def _bytes_of(content: bytes | Path) -> bytes:
    return content if isinstance(content, bytes) else regular_file.read(content)


def node_name() -> str:
    """This node's name, from the launcher."""
    return os.environ.get("SLIPWAY_NODE", "local")


def _number(variable: str, alone: int) -> int:
    """A number of each rank from torchrun or another launcher; `alone` for a process without a launcher."""
    return int(os.environ.get(variable, alone))
