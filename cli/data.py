"""Datasets: building them, comparing their snapshots, bringing them to nodes and object stores, removing garbage."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.cli import completion_names, context, data_lines, names, output
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

    here, name = context.here(), names.resolved(dataset, completion_names.datasets(""), "dataset recipe")
    recipe = usable_with(recipes_folder(), "datasets", name).datasets[name]
    with output.progress(f"building {name}") as shown, here.dagster() as instance:
        from slipway.assets.datasets.assets import build as built

        sha256 = built(recipe, here.tiers, instance, lambda line: shown.update(f"building {name}: {line}"))
    if json:
        return output.print_json({"dataset": name, "snapshot": sha256})
    print(f"{name} points at snapshot {sha256}")


@verb(app, "slipway data list", name="list")
def list_(json: AsJson = False) -> None:
    """List the datasets that have a snapshot."""
    from slipway.assets.datasets.snapshots.pointer import history

    here = context.here()
    found = {name: history(here.durable, name)[-1] for name in _known(here)}
    if json:
        return output.print_json([{"dataset": name, **vars(past)} for name, past in found.items()])
    output.print_table(
        ("dataset", "snapshot", "documents", "tokens", "shards"),
        [
            (name, p.sha256[:12], f"{p.documents:,}", f"{p.tokens:,}" if p.tokens else "-", p.shards)
            for name, p in found.items()
        ],
    )
    if not found:
        output.note("no dataset has a snapshot yet; to make one: slipway data build DATASET")


@verb(app, "slipway data history python-stdlib")
def history(dataset: Dataset, json: AsJson = False) -> None:
    """List the snapshots of a dataset, the latest last."""
    from slipway.assets.datasets.snapshots import pointer as snapshots

    here = context.here()
    found = snapshots.history(here.durable, _made(dataset, here))
    if json:
        return output.print_json(found)
    for past in found:
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

    here = context.here()
    name = _made(dataset, here)
    before, after = (find(here.durable, name, each) for each in (old, new))
    with output.progress("comparing"):
        found = difference(before, after, here.durable)
    if json:
        return output.print_json({"old": before.sha256, "new": after.sha256, **vars(found)})
    if before.sha256 == after.sha256:
        return print(f"both are snapshot {before.sha256[:12]}: nothing differs")
    print(f"{before.sha256[:12]} to {after.sha256[:12]}")
    print("\n".join(data_lines.difference(found)))


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

    here = context.here()
    made = find(here.durable, _made(dataset, here), snapshot)
    with output.progress("reading the documents table"):
        found = inspection.inspect(here.durable, made, examples, reason)
    if json:
        return output.print_json(found)
    print("\n".join(data_lines.inspection(found)))


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
    here, name = context.here(), names.resolved(dataset, completion_names.datasets(""), "dataset recipe")
    recipe = usable_with(recipes_folder(), "datasets", name).datasets[name]
    with output.progress(f"looking for them in {name}") as shown, here.dagster() as instance:
        from slipway.operations import takedown as operation

        asked = operation.TakedownRequest(what, why, context.who(changes=doing), near)
        where = (recipe, here.tiers, here.tracking)
        if doing:
            report = operation.take_down(*where, instance, asked, lambda line: shown.update(f"{name}: {line}"))
        else:
            report = operation.outlook(*where, asked)
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
    with output.progress(f"staging {sha256[:12]}") as shown:
        report = every(1.0, lambda progress: shown.update(f"staging {sha256[:12]}: {progress}"))
        staged = staging.stage(sha256, origins or [str(context.here().durable)], to, report, part)
    _tell(vars(staged), json)


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
        published = publishing.publish(sha256, durable or context.here().durable, to)
    _tell(vars(published), json)


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

    here = context.here()
    with output.progress("looking for what nothing refers to") as shown:
        found = collected(here.tiers, here.tracking, keep, hours, not apply, shown.update)
    if json:
        return output.print_json({**vars(found), "applied": apply})
    print(data_lines.garbage(found, apply))


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

    here = context.here()
    with output.progress("reading the datasets again") as shown, here.dagster() as instance:
        from slipway.assets.datasets.assets import build as built

        recipes = usable().datasets if rebuild else None
        report = every(1.0, lambda progress: shown.update(f"reading the datasets again: {progress}"))
        found = scrubbing.scrubbed(
            here.tiers, 0, 1, report, recipes, lambda recipe: built(recipe, here.tiers, instance, shown.update)
        )
    if json:
        output.print_json(found)
    else:
        print(f"{counted(found.files, 'file')} of {bytes_in_words(found.bytes)} read, {len(found.damaged)} damaged")
        for line in (*map(scrubbing.sentence, found.damaged), *(f"not read: {each}" for each in found.unread)):
            print(line)
    if found.lost or found.unread:
        raise typer.Exit(1)


def _known(here: context.Workplace) -> list[str]:
    """The datasets that have pointed at a snapshot."""
    datasets = here.durable / "datasets"
    return [name for name in listing.names_if_there(datasets) if (datasets / name / "history.journal").exists()]


def _made(given: str, here: context.Workplace) -> str:
    """The dataset with a snapshot that is meant. Raises ValueError, for a recipe's without one too."""
    from slipway.assets.datasets.snapshots.pointer import none_of

    made, recipes = _known(here), completion_names.datasets(given)
    if recipes and not any(name.startswith(given) for name in made):
        raise none_of(names.resolved(given, recipes, "dataset"))
    return names.resolved(given, made, "dataset")


def _sha256(given: str) -> str:
    """The snapshot that is meant: named in full, or as a dataset's present one. Raises ValueError."""
    if len(given) == 64 and set(given) <= set("0123456789abcdef"):
        return given
    from slipway.assets.datasets.snapshots.pointer import current, none_of

    here = context.here()
    name = _made(given, here)
    found = current(here.durable, name)
    if found is None:
        raise none_of(name)
    return found


def _tell(fields: dict[str, object], json: bool) -> None:
    output.print_json(fields) if json else output.print_fields(fields)
