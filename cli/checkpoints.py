"""Checkpoints: which there are, whether their bytes are what was committed, and taking one elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base.quantities import counted

if TYPE_CHECKING:
    from slipway.resources.trainings.store import TrainingStore
    from slipway.trainer.record.fence import Commit

app = group("The checkpoints of trainings: list, verify, export, reseal, release.")

Training = Annotated[
    str,
    typer.Argument(
        metavar="TRAINING", help="Its id, or the beginning of it.", autocompletion=completion_names.trainings
    ),
]
Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="TRAINING[@STEP]",
        help="A checkpoint; without a step the newest one.",
        autocompletion=completion_names.checkpoints,
    ),
]


@verb(app, "slipway checkpoints list tiny-dec", name="list")
def list_(training: Training, json: AsJson = False) -> None:
    """List the checkpoints of a training, and who holds them."""
    from slipway.resources.trainings import checkpoints
    from slipway.trainer.checkpoint.tiers import replicas

    context = command_context.current()
    store = context.training(training, _has_checkpoints, "training with checkpoints")
    commits = store.commits()
    holders = replicas.holders(store.folder, commits)
    for name, why in store.read().damaged.items():
        output.note(f"{store.id}@{int(name.split('.')[0])}: its record is damaged, and it does not count: {why}")
    if json:
        return output.print_json([{**vars(commit), "tiers": holders[commit.name]} for commit in commits])
    output.print_table(
        ("checkpoint", "when", "tiers", "manifest", "folder"),
        [
            (f"{store.id}@{c.step}", output.when(c.at), ", ".join(holders[c.name]) or "none", c.manifest[:12], c.folder)
            for c in commits
        ],
    )
    for name, reason in checkpoints.set_aside(store).items():
        output.note(f"{store.id}@{int(name.split('.')[0])}: set aside: {reason}")
    if not commits:
        output.note(f"{store.id} has no checkpoint yet")


@verb(app, "slipway checkpoints verify tiny-dec@80 --tier backup")
def verify(
    checkpoint: Checkpoint,
    tier: Annotated[str, typer.Option(help="Where to read it: durable or backup.")] = "durable",
    json: AsJson = False,
) -> None:
    """Compare every byte of a checkpoint with its manifest.

    Nothing is changed: the trainer or the evaluation that needs a damaged checkpoint sets it aside, and `release` takes
    that back.
    """
    from slipway.resources.trainings.checkpoints import verify as verified

    context = command_context.current()
    store, commit = _find(context, checkpoint)
    shared = context.tiers.shared()
    where = shared[names.resolved(tier, shared, "tier")]
    with output.progress(f"verifying {store.id}@{commit.step}") as progress_line:
        result = verified(
            where, commit, lambda done, total: progress_line.update(f"{done / 1e9:.1f} of {total / 1e9:.1f} GB")
        )
    if json:
        return output.print_json({"training": store.id, "step": commit.step, "tier": tier, **vars(result)})
    size = f"{counted(result.files, 'file')}, {counted(result.bytes, 'byte')}"
    print(f"{store.id}@{commit.step} is whole on the {tier} tier: {size}")


@verb(app, "slipway checkpoints export tiny-dec@400 --to ./tiny-llama", changes=True)
def export(
    checkpoint: Checkpoint,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The new folder to make.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A tokenizer.json; by default the one in the durable tier.")
    ] = None,
    precision: Annotated[str, typer.Option(help="The type of the weights: bf16 or fp32.")] = "bf16",
    file_gb: Annotated[float, typer.Option(help="The largest size of a weight file, in GB.")] = 5.0,
    json: AsJson = False,
) -> None:
    """Write a decoder's checkpoint in the Hugging Face layout.

    The folder of a checkpoint may be given instead of its name. A checkpoint whose weights are larger than
    `evaluation.process_gigabytes` of its recipe is written by a job, where jobs see the new folder: on a cluster, on
    the durable tier.
    """
    from slipway.trainer.start import export as exports

    if "/" in checkpoint:
        with output.progress(f"exporting {checkpoint}"):
            manifest = exports.export(Path(checkpoint), to, None, tokenizer, precision, int(file_gb * 1e9))
    else:
        context = command_context.current()
        manifest = exported(context, *_find(context, checkpoint), to, tokenizer, precision, int(file_gb * 1e9))
    show_export(to, manifest, json)


def show_export(to: Path, manifest: str, json: bool) -> None:
    """Print what an export has made; `manifest` is the SHA-256 of its manifest."""
    files = sorted(path.name for path in to.iterdir())
    if json:
        return output.print_json({"to": to, "manifest": manifest, "files": files})
    print(f"{to}: {', '.join(files)}")


def exported(
    context: command_context.CommandContext,
    store: "TrainingStore",
    commit: "Commit",
    to: Path,
    tokenizer: Path | None,
    precision: str,
    file_bytes: int,
) -> str:
    """Export a checkpoint that a training has committed; returns the SHA-256 of the export's manifest."""
    from slipway.assets.exporting import Exporting

    with output.progress(f"exporting {store.id}@{commit.step}") as progress_line:
        exporting = Exporting(context.tiers, context.compute, progress_line.update)
        return exporting.write(commit, store.run_policy(), to, tokenizer, precision, file_bytes)


@verb(app, "slipway checkpoints reseal --dry-run", changes=True)
def reseal(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, and say what needs which key.")] = False,
    json: AsJson = False,
) -> None:
    """Wrap the keys of encrypted checkpoints anew.

    They are wrapped with the newest key, so that an older one can be taken out of its file.

    Write the new key as the first line of the key file before. No checkpoint is written again: the keys of its files
    are wrapped. It can be interrupted at any moment, and goes on when it is called again. It ends with 1 while
    something needs an older key.
    """
    from slipway.resources.trainings.checkpoints import reseal_all, resealing_sentences

    context = command_context.current()
    with output.progress("sealing checkpoints"):
        done = reseal_all(context.stores().values(), context.tiers.shared(), dry_run)
    if json:
        output.print_json(vars(done))
    else:
        for line in resealing_sentences(done):
            print(line)
    if done.needed or done.failed:
        raise typer.Exit(1)


@verb(app, "slipway checkpoints release tiny-dec@80", changes=True)
def release(
    checkpoint: Annotated[str, typer.Argument(metavar="TRAINING@STEP", help="A checkpoint that was set aside.")],
    json: AsJson = False,
) -> None:
    """Let a checkpoint that was set aside count again.

    Every byte of a copy is read and compared first. What was set aside, why, and who took it back stays on record.
    """
    from slipway.resources.trainings import checkpoints

    context = command_context.current()
    training, step = names.with_step(checkpoint)
    store = context.training(
        training, lambda candidate: bool(checkpoints.set_aside(candidate)), "training with a checkpoint set aside"
    )
    aside = checkpoints.set_aside(store)
    chosen = [name for name in aside if step is None or int(name.split(".")[0]) == step]
    if len(chosen) != 1:
        there = ", ".join(f"{store.id}@{int(name.split('.')[0])}" for name in aside) or "none"
        raise ValueError(f"{checkpoint}: found {len(chosen)} checkpoints that were set aside, expected one of: {there}")
    with output.progress(f"verifying {checkpoint}") as progress_line:
        done = checkpoints.release(
            store,
            context.tiers.shared(),
            chosen[0],
            command_context.actor(),
            lambda read, total: progress_line.update(f"{read / 1e9:.1f} of {total / 1e9:.1f} GB"),
        )
    if json:
        return output.print_json(vars(done))
    print(f"{checkpoint} is whole on {', '.join(done.tiers)} and counts again; it was set aside: {done.reason}")


def _find(context: command_context.CommandContext, checkpoint: str) -> "tuple[TrainingStore, Commit]":
    """The checkpoint that a name means. Raises ValueError."""
    training, step = names.with_step(checkpoint)
    store = context.training(training, _has_checkpoints, "training with checkpoints")
    commits = {commit.step: commit for commit in store.commits()}
    chosen = max(commits, default=None) if step is None else step
    if chosen not in commits:
        there = ", ".join(map(str, commits)) or "none yet"
        raise ValueError(f"training {store.id}: found no checkpoint of step {chosen}, expected one of {there}")
    return store, commits[chosen]


def _has_checkpoints(store: "TrainingStore") -> bool:
    return bool(store.commits())
