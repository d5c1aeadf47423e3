"""The demo's output: its progress in lines, and a table of the results."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from rich.console import Console
from rich.table import Table

from slipway.assets import plots
from slipway.deploy.embedded.pipeline_state import Chain
from slipway.resources.home import Home
from slipway.trainer.base.quantities import counted
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record.scores import Score


def lines(chain: Chain) -> Iterator[str]:
    """The lines about the current state of a chain. The demo prints the lines that are new."""
    if chain.snapshot is None:
        return
    kind, counts = _contents(chain.snapshot)
    splits = ", ".join(f"{name} {count:,} {kind}" for name, count in counts.items())
    yield f"snapshot {chain.snapshot.sha256[:12]}: {splits}"
    if chain.sweep is None:
        return
    for trial in chain.sweep.trials.values():
        at = f" at step {trial.last_step}" if trial.last_step else ""
        value = trial.reports.get(trial.last_step)
        reached = f", validation loss {value:.3f}" if value is not None else ""
        yield f"trial {trial.number}: {trial.state}{at}{reached}"
    if chain.sweep.closed:
        yield f"sweep {chain.sweep.closed.outcome}: best is trial {chain.sweep.closed.best_trial}"
    if chain.training is None:
        return
    claim = chain.training.newest_claim()
    if claim:
        yield (
            f"training {chain.training.id}: incarnation {claim.token.incarnation} "
            f"on {', '.join(claim.nodes)} ({claim.cause})"
        )
    for step, loss in chain.losses():
        if step % 50 == 0:
            yield f"training: step {step}, loss {loss:.3f}"
    for commit, score in chain.scores:
        yield f"checkpoint of step {commit.step}: {measured(score)}"
    if chain.promoted and chain.champion:
        yield f"champion: {chain.model} version {chain.champion.version}"


def _documents(snapshot: Snapshot) -> str:
    if isinstance(snapshot, ImageSnapshot):
        return counted(sum(split.images for split in snapshot.splits.values()), "picture")
    return counted(sum(split.documents for split in snapshot.splits.values()), "document")


def measured(score: Score) -> str:
    """The bits per byte of a checkpoint, or its accuracy if it has none, in words."""
    return f"{score.bits_per_byte:.3f} bits per byte" if score.coded else f"accuracy {score.accuracy:.1%}"


def _contents(snapshot: Snapshot) -> tuple[str, dict[str, int]]:
    """The kind of a snapshot's contents, and their number by split."""
    if isinstance(snapshot, ImageSnapshot):
        return "pictures", {name: split.images for name, split in snapshot.splits.items()}
    return "tokens", {name: split.tokens for name, split in snapshot.splits.items()}


def table(chain: Chain) -> Table:
    """The results of a complete chain."""
    summary = Table(title=f"Slipway: {chain.recipe}", show_header=False, title_justify="left")
    summary.add_column(style="bold")
    summary.add_column(overflow="fold")
    for name, value in _rows(chain):
        summary.add_row(name, value)
    return summary


def _rows(chain: Chain) -> Iterator[tuple[str, str]]:
    snapshot = chain.snapshot
    sweep = chain.sweep
    training = chain.training
    assert snapshot is not None and sweep is not None and training is not None
    yield "snapshot", f"{snapshot.sha256[:16]}  {_documents(snapshot)} of {snapshot.dataset}"
    kind, counts = _contents(snapshot)
    yield kind, ", ".join(f"{name} {count:,}" for name, count in counts.items())
    stopped = sum(trial.state == "stopped" for trial in sweep.trials.values())
    yield "trials", f"{len(sweep.trials)}, {stopped} stopped early, {sweep.compute_saved:.0%} of the steps saved"
    if sweep.best:
        chosen = ", ".join(f"{name.split('.')[-1]} {_short(value)}" for name, value in sweep.best.parameters.items())
        yield "best trial", f"{sweep.best.number}: {chosen}"
    losses = chain.losses()
    claim = training.newest_claim()
    yield "training", f"{training.id}, {counted(claim.token.incarnation if claim else 0, 'incarnation')}"
    yield "loss", f"{losses[0][1]:.3f} at step {losses[0][0]} to {losses[-1][1]:.3f} at step {losses[-1][0]}"
    for commit, score in chain.scores:
        yield (
            f"checkpoint {commit.step}",
            f"validation loss {score.loss:.3f}, {measured(score)}, manifest {commit.manifest[:12]}",
        )
    if chain.champion:
        note = "" if chain.promoted else " (kept: the new candidate did not pass its checks)"
        yield "champion", f"{chain.model} version {chain.champion.version}{note}"
        yield "its files", unquote(urlparse(str(chain.champion.source)).path)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def save_plot(chain: Chain, home: Home) -> Path:
    """Save the loss curve as a PNG in the home. Returns the path."""
    validation = [(commit.step, score.loss) for commit, score in chain.scores]
    series = {"training loss": chain.losses(), "validation loss": validation}
    path = home.root / f"{chain.recipe}-loss.png"
    plots.curve_figure(series, "step", "nats per prediction").savefig(path, dpi=120)
    return path


def show(console: Console, chains: list[Chain], home: Home) -> None:
    """Print the tables, the paths of the plots, and how to open the UI."""
    for chain in chains:
        console.print(table(chain))
        console.print(f"loss curve: {save_plot(chain, home)}", soft_wrap=True)
    console.print(f"everything is in {home.root}; to open it in the UI: slipway dev", soft_wrap=True)
