"""Datasets: building them, comparing their snapshots, bringing them to nodes and object stores, removing garbage."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.cli import command_context, completion_names, data_lines, names, output
from slipway.cli.recipes import usable
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base import listing
from slipway.trainer.base.quantities import bytes_in_words, counted

app = group("Datasets: build, list, diff, inspect, takedown, stage, replicate, gc, scrub.")

Dataset = Annotated[
    str,
    typer.Argument(
        metavar="DATASET", help="Its name, or the beginning of it.", autocompletion=completion_names.datasets
    ),
]
Snapshot = Annotated[
    str,
    typer.Argument(metavar="SNAPSHOT", help="A dataset, for its present snapshot, or the SHA-256 of one."),
]


@verb(app, "slipway data build python-stdlib", changes=True)
def build(dataset: Dataset, json: AsJson = False) -> None:
    """Make the snapshot of a dataset from its present source.

    What has not changed is not made again. The dataset points at it once its checks have passed.
    """
    from slipway.recipes.load import recipes_folder
    from slipway.recipes.usable import usable_with

    context = command_context.current()
    name = names.resolved(dataset, completion_names.datasets(""), "dataset recipe")
    recipe = usable_with(recipes_folder(), "datasets", name).datasets[name]
    with output.progress(f"building {name}") as progress_line, context.dagster() as instance:
        from slipway.assets.datasets.assets import build as built

        sha256 = built(recipe, context.tiers, instance, lambda line: progress_line.update(f"building {name}: {line}"))
    if json:
        return output.print_json({"dataset": name, "snapshot": sha256})
    print(f"{name} points at snapshot {sha256}")


@verb(app, "slipway data list", name="list")
def list_(json: AsJson = False) -> None:
    """List the datasets that have a snapshot."""
    from slipway.assets.datasets.snapshots.pointer import history

    context = command_context.current()
    latest = {name: history(context.durable, name)[-1] for name in _known(context)}
    if json:
        return output.print_json([{"dataset": name, **vars(past)} for name, past in latest.items()])
    output.print_table(
        ("dataset", "snapshot", "documents", "tokens", "shards"),
        [
            (name, p.sha256[:12], f"{p.documents:,}", f"{p.tokens:,}" if p.tokens else "-", p.shards)
            for name, p in latest.items()
        ],
    )
    if not latest:
        output.note("no dataset has a snapshot yet; to make one: slipway data build DATASET")


@verb(app, "slipway data history python-stdlib")
def history(dataset: Dataset, json: AsJson = False) -> None:
    """List the snapshots of a dataset, the latest last."""
    from slipway.assets.datasets.snapshots import pointer as snapshots

    context = command_context.current()
    entries = snapshots.history(context.durable, _dataset_with_snapshot(dataset, context))
    if json:
        return output.print_json(entries)
    for past in entries:
        counts = (past.documents, "document"), (past.tokens, "token"), (past.shards, "shard")
        sizes = "  ".join(counted(number, noun) for number, noun in counts if number)
        print(f"~{past.ago}  {past.sha256[:12]}  {past.fault or sizes}")


@verb(app, "slipway data diff python-stdlib ~3 ~0")
def diff(
    dataset: Dataset,
    old: Annotated[str, typer.Argument(help="~1 is the one before the last; or the beginning of a SHA-256.")] = "~1",
    new: Annotated[str, typer.Argument(help="~0 is the last.")] = "~0",
    json: AsJson = False,
) -> None:
    """Compare two snapshots of a dataset.

    Documents, also by rule, language and source, tokens, shards, and the bytes that nodes would have to fetch.
    """
    from slipway.assets.datasets.snapshots.difference import difference
    from slipway.assets.datasets.snapshots.pointer import find

    context = command_context.current()
    name = _dataset_with_snapshot(dataset, context)
    before, after = (find(context.durable, name, reference) for reference in (old, new))
    with output.progress("comparing"):
        changes = difference(before, after, context.durable)
    if json:
        return output.print_json({"old": before.sha256, "new": after.sha256, **vars(changes)})
    if before.sha256 == after.sha256:
        return print(f"both are snapshot {before.sha256[:12]}: nothing differs")
    print(f"{before.sha256[:12]} to {after.sha256[:12]}")
    print("\n".join(data_lines.difference(changes)))


@verb(app, "slipway data inspect python-stdlib --reason near_duplicate --examples 10")
def inspect(
    dataset: Dataset,
    snapshot: Annotated[str, typer.Argument(help="~0 is the last; or the beginning of a SHA-256.")] = "~0",
    reason: Annotated[str, typer.Option(help="Only what was left out for this reason.")] = "",
    examples: Annotated[int, typer.Option(min=0, help="Documents shown of each reason.")] = 3,
    json: AsJson = False,
) -> None:
    """Show what a snapshot is made of, and what was left out.

    Each reason with examples: what shows it, and how the document begins; and the files that are not read.
    """
    from slipway.assets.datasets import inspection
    from slipway.assets.datasets.snapshots.pointer import find

    context = command_context.current()
    selected = find(context.durable, _dataset_with_snapshot(dataset, context), snapshot)
    with output.progress("reading the documents table"):
        report = inspection.inspect(context.durable, selected, examples, reason)
    if json:
        return output.print_json(report)
    print("\n".join(data_lines.inspection(report)))


@verb(app, "slipway data takedown my-texts --url https://a.example/page --why 'its author asked for it'", changes=True)
def takedown(
    dataset: Dataset,
    why: Annotated[str, typer.Option(help="What is shown as the reason.")],
    url: Annotated[
        list[str] | None, typer.Option("--url", help="All documents of this URL, now and in future.")
    ] = None,
    urls: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same of the URLs in a file, one a line.")
    ] = None,
    under: Annotated[
        list[str] | None,
        typer.Option("--under", metavar="URL", help="All documents of this page and what is below it, or of a domain."),
    ] = None,
    documents: Annotated[
        list[str] | None, typer.Option("--document", metavar="FILE[#NUMBER]", help="A document, or all of a file.")
    ] = None,
    near: Annotated[bool, typer.Option("--near", help="Also what is nearly equal to them.")] = False,
    apply: Annotated[
        bool | None,
        typer.Option(
            "--apply/--dry-run",
            help="Do it, or only say what it would be; by default only that with --urls or --under.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Take documents out of a dataset for good, by URL or name.

    Builds the dataset without them, and says which snapshots, trainings and models have seen them. --urls and --under
    may mean many: without --apply, they only say what they would take down.
    A text stays out from whichever file it comes, as long as it is the same.
    """
    from slipway.assets.datasets.takedown_search import TakedownSelection
    from slipway.recipes.load import recipes_folder
    from slipway.recipes.usable import usable_with

    all_urls = [*(url or ()), *(data_lines.listed_urls(urls) if urls else ())]
    what = TakedownSelection(tuple(all_urls), tuple(under or ()), tuple(documents or ()))
    if what == TakedownSelection():
        raise ValueError("expected --url, --urls, --under or --document: what is to be taken down")
    doing = apply if apply is not None else not (urls or under)
    context = command_context.current()
    name = names.resolved(dataset, completion_names.datasets(""), "dataset recipe")
    recipe = usable_with(recipes_folder(), "datasets", name).datasets[name]
    with output.progress(f"looking for them in {name}") as progress_line, context.dagster() as instance:
        from slipway.operations import takedown as operation

        request = operation.TakedownRequest(what, why, command_context.actor(changes=doing), near)
        where = (recipe, context.tiers, context.tracking)
        if doing:
            report = operation.take_down(
                *where, instance, request, lambda line: progress_line.update(f"{name}: {line}")
            )
        else:
            report = operation.outlook(*where, request)
    output.print_json(report) if json else print("\n".join(data_lines.takedown(report)))


@verb(app, "slipway data stage python-stdlib --to /nvme/slipway")
def stage(
    snapshot: Snapshot,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder on this node's NVMe.")],
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="ORIGIN",
            help="A folder or URL to fetch from, then others for when it is away or damaged.",
        ),
    ] = None,
    node: Annotated[str, typer.Option(help="Stage the part of this node alone.")] = "",
    nodes: Annotated[str, typer.Option(help="All nodes that share the snapshot, with commas between.")] = "",
    json: AsJson = False,
) -> None:
    """Bring a snapshot to this node's NVMe, verified.

    By default from the durable tier. Nodes start this by themselves; by hand it warms one up.
    """
    from slipway.trainer.base.progress import every
    from slipway.trainer.staging import stage as staging
    from slipway.trainer.staging.parts import WHOLE_SNAPSHOT, SnapshotPart

    part = SnapshotPart(node, tuple(nodes.split(","))) if nodes else WHOLE_SNAPSHOT
    sha256 = _sha256(snapshot)
    with output.progress(f"staging {sha256[:12]}") as progress_line:
        report = every(1.0, lambda progress: progress_line.update(f"staging {sha256[:12]}: {progress}"))
        staged = staging.stage(sha256, origins or [str(command_context.current().durable)], to, report, part)
    _print_fields(vars(staged), json)


@verb(app, "slipway data replicate python-stdlib --to s3://bucket/slipway", changes=True)
def replicate(
    snapshot: Snapshot,
    to: Annotated[str, typer.Option(metavar="URL", help="s3://bucket/prefix; credentials come from AWS_*.")],
    durable: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="The durable tier; by default this place's.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Publish a snapshot to an object store.

    Whole or not at all; what is there already is not sent again.
    """
    from slipway.trainer.staging import publishing

    sha256 = _sha256(snapshot)
    with output.progress(f"replicating {sha256[:12]} to {to}"):
        published = publishing.publish(sha256, durable or command_context.current().durable, to)
    _print_fields(vars(published), json)


@verb(app, "slipway data gc --keep 3 --apply", changes=True)
def gc(
    keep: Annotated[int, typer.Option(min=0, help="Snapshots of each dataset before the one that it points at.")] = 5,
    hours: Annotated[float, typer.Option(min=0, help="Younger files stay: a build may be about to use them.")] = 24.0,
    apply: Annotated[bool, typer.Option("--apply", help="Remove it, and do not only say what would go.")] = False,
    json: AsJson = False,
) -> None:
    """Remove from the durable tier what nothing refers to.

    No kept snapshot, no unfinished training, no registered model. Without --apply, only say what would go.
    """
    from slipway.operations.garbage import collected

    context = command_context.current()
    with output.progress("looking for what nothing refers to") as progress_line:
        garbage = collected(context.tiers, context.tracking, keep, hours, not apply, progress_line.update)
    if json:
        return output.print_json({**vars(garbage), "applied": apply})
    print(data_lines.garbage(garbage, apply))


@verb(app, "slipway data scrub --rebuild", changes=True)
def scrub(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build the datasets anew of which no other place has what is damaged.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Read the files of all datasets again, and mend what is broken.

    What is damaged comes from the backup tier, or another place that staging asks. Each night the job `scrub` reads a
    seventh. Fails when something is lost or could not be read.
    """
    from slipway.operations import scrub as scrubbing
    from slipway.trainer.base.progress import every

    context = command_context.current()
    with output.progress("reading the datasets again") as progress_line, context.dagster() as instance:
        from slipway.assets.datasets.assets import build as built

        recipes = usable().datasets if rebuild else None
        report = every(1.0, lambda progress: progress_line.update(f"reading the datasets again: {progress}"))
        result = scrubbing.scrubbed(
            context.tiers,
            0,
            1,
            report,
            recipes,
            lambda recipe: built(recipe, context.tiers, instance, progress_line.update),
        )
    if json:
        output.print_json(result)
    else:
        print(f"{counted(result.files, 'file')} of {bytes_in_words(result.bytes)} read, {len(result.damaged)} damaged")
        for line in (*map(scrubbing.sentence, result.damaged), *(f"not read: {problem}" for problem in result.unread)):
            print(line)
    if result.lost or result.unread:
        raise typer.Exit(1)


def _known(context: command_context.CommandContext) -> list[str]:
    """The datasets that have pointed at a snapshot."""
    datasets = context.durable / "datasets"
    return [name for name in listing.names_if_there(datasets) if (datasets / name / "history.journal").exists()]


def _dataset_with_snapshot(prefix: str, context: command_context.CommandContext) -> str:
    """The dataset with a snapshot that is meant. Raises ValueError, for a recipe's without one too."""
    from slipway.assets.datasets.snapshots.pointer import none_of

    datasets = _known(context)
    recipes = completion_names.datasets(prefix)
    if recipes and not any(name.startswith(prefix) for name in datasets):
        raise none_of(names.resolved(prefix, recipes, "dataset"))
    return names.resolved(prefix, datasets, "dataset")


def _sha256(snapshot: str) -> str:
    """The snapshot that is meant: named in full, or as a dataset's present one. Raises ValueError."""
    if len(snapshot) == 64 and set(snapshot) <= set("0123456789abcdef"):
        return snapshot
    from slipway.assets.datasets.snapshots.pointer import current, none_of

    context = command_context.current()
    name = _dataset_with_snapshot(snapshot, context)
    sha256 = current(context.durable, name)
    if sha256 is None:
        raise none_of(name)
    return sha256


def _print_fields(fields: dict[str, object], json: bool) -> None:
    output.print_json(fields) if json else output.print_fields(fields)
