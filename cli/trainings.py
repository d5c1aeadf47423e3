"""Trainings: what runs and where it stands, and what a person wants of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, output, spent
from slipway.cli.verbs import AsJson, group, verb
from slipway.trainer.base import field_changes

if TYPE_CHECKING:
    from slipway.resources.trainings.store import TrainingStore

app = group("Trainings.")
SECTION = "Trainings"

Id = Annotated[
    str,
    typer.Argument(
        metavar="TRAINING", help="Its id, or the beginning of it.", autocompletion=completion_names.trainings
    ),
]


@verb(app, "slipway quotas", section=SECTION)
def quotas(json: AsJson = False) -> None:
    """List what each team may use, and has used.

    A team without any left starts no further training until then; what has begun goes on.
    """
    spent.quotas(command_context.current(), json)


@verb(app, "slipway ls --json", section=SECTION)
def ls(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also trials, and trainings that are not wanted yet.")
    ] = False,
    sql: Annotated[
        str, typer.Option(metavar="QUERY", help="Answer this over the tables trainings, spent, lost, cost and quotas.")
    ] = "",
    rows: Annotated[int, typer.Option(min=1, help="With --sql: the most rows of its answer that are shown.")] = 10_000,
    json: AsJson = False,
) -> None:
    """List the trainings and where each stands.

    ETTR is the share of the time since a training was wanted that went into steps which were kept (Meta's definition).
    With --sql, what their time was spent on: SELECT cause, sum(seconds) FROM lost GROUP BY cause.
    """
    from slipway.resources.trainings.status import summary

    context = command_context.current()
    if sql:
        return spent.answer(context, sql, everything, rows, json)
    with output.progress("reading the trainings"):
        stores = context.stores(trials=everything)
        summaries = [summary(store, context.launcher) for store in stores.values()]
        listed = [entry for entry in summaries if everything or entry.state != "offered"]
        ettr = {entry.id: spent.ettr(stores[entry.id]) for entry in listed}
    if json:
        return output.print_json([{**vars(entry), "ettr": ettr[entry.id]} for entry in listed])
    head = ("training", "state", "step", "checkpoint", "ETTR", "desired", "since", "why")
    output.print_table(
        head,
        [
            (
                entry.id,
                entry.state,
                f"{entry.step}/{entry.steps}" if entry.steps else entry.step,
                entry.checkpoint or "-",
                "-" if (share := ettr[entry.id]) is None else f"{share:.1%}",
                entry.desired or "-",
                output.when(entry.since),
                entry.why,
            )
            for entry in listed
        ],
    )
    if not listed:
        output.note(_none(len(summaries)))


@verb(app, "slipway show tiny-dec", section=SECTION)
def show(training: Id, json: AsJson = False) -> None:
    """Show a training: what it is, and where it stands."""
    from slipway.resources.trainings import incident_reports, updates
    from slipway.resources.trainings.status import summary

    context = command_context.current()
    store = context.training(training)
    incidents = incident_reports.of_all([store])
    specification = store.specification()
    status = summary(store, context.launcher)
    changes = updates.known(store.folder)
    branch = specification.branch
    left_out = _left_out(context, specification.snapshot)
    if json:
        return output.print_json(
            {
                **vars(status),
                "recipe": specification.recipe,
                "snapshot": specification.snapshot,
                "held_out": left_out,
                "numbers": specification.identity_config,
                "origin": store.run_policy().origin,
                "changes": [{**vars(entry), "state": entry.state} for entry in changes],
                "folder": store.folder,
                "checkpoints": [{"step": commit.step, "manifest": commit.manifest} for commit in store.commits()],
                "incidents": incidents,
                "account": spent.account(store),
            }
        )
    fields = {
        "training": status.id,
        "recipe": specification.recipe,
        "snapshot": specification.snapshot,
        "state": f"{status.state} since {output.when(status.since)}",
        "step": f"{status.step} of {status.steps}" if status.steps else status.step,
        "wanted": status.desired or "not yet",
        "why": status.why or "-",
        "incarnation": status.incarnation,
        "nodes": ", ".join(status.nodes) or "-",
        "checkpoints": ", ".join(str(commit.step) for commit in store.commits()) or "none",
        "folder": store.folder,
        **({"continues": f"{branch.training}@{branch.step}"} if branch else {}),
        **({"held out": left_out} if left_out else {}),
        **spent.fields(store),
    }
    output.print_fields(fields)
    for name, (old, new) in store.run_policy().origin.get("changed", {}).items() if branch else ():
        print(f"branched with {name}: {field_changes.change(old, new)}")
    for change in changes:
        pairs = field_changes.changes(change.pairs)
        print(f"change {change.number} by {change.by} ({change.why}): {pairs}; {change.state}")
    for incident in incidents:
        print(
            f"incident {incident.id} {output.when(incident.at)}: {incident_reports.headline(incident)}; "
            f"{incident.state}"
        )


def _left_out(context: command_context.CommandContext, snapshot: str) -> str:
    """Which validation documents a snapshot is without, in a sentence; empty for none, or without its manifest."""
    from slipway.assets import holdout_filter
    from slipway.trainer.data import snapshots

    try:
        return holdout_filter.sentence(snapshots.read(context.durable, snapshot))
    except ValueError:
        return ""


@verb(app, "slipway watch tiny-dec", section=SECTION)
def watch(training: Id) -> None:
    """Follow a training until it ends; Ctrl-C leaves it running."""
    context = command_context.current()
    follow(context, context.training(training, _begun, "started training"))


def follow(context: command_context.CommandContext, store: "TrainingStore", bring: bool = False) -> None:
    """Print what happens to a training until it has ended, or is wanted no more and has.

    With `bring`, also take the steps that are due to it, as an instance would. Raises ValueError when it failed.
    """
    from slipway.resources.trainings.foreground import until_ended

    try:
        for line in until_ended(store, context.control if bring else None, command_context.actor() if bring else ""):
            print(line, flush=True)
    except KeyboardInterrupt:
        output.note(f"\n{store.id} goes on; to stop it: slipway stop {store.id}")
        return
    ended = store.exit()
    if ended is None or ended.outcome == "failed":
        desired = store.desired()
        raise ValueError(
            f"{store.id} failed: {ended.reason if ended else desired.why if desired else 'no reason given'}"
        )
    print(f"{store.id} {ended.outcome} at step {ended.step}")


@verb(app, "slipway stop tiny-dec", section=SECTION, changes=True)
def stop(training: Id, why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "asked to stop") -> None:
    """Stop a training, with a checkpoint of its last step.

    `slipway resume` goes on from there.
    """
    _stop(training, why)


@verb(app, "slipway pause tiny-dec", section=SECTION, changes=True)
def pause(training: Id) -> None:
    """Stop a training that you mean to resume.

    As `stop` does, with the pause on record as the reason.
    """
    _stop(training, "paused")


@verb(app, "slipway resume tiny-dec", section=SECTION, changes=True)
def resume(training: Id, why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "resumed") -> None:
    """Go on with a training that was stopped or given up.

    From its newest checkpoint.
    """
    from slipway.resources.trainings import foreground

    context = command_context.current()
    store = context.training(training, _is_down, "stopped training")
    if store.id not in context.stores(trials=False):
        raise ValueError(f"trial {store.id}: found a trial, expected a training: its sweep starts it again by itself")
    foreground.resume(context.trainings, store, command_context.actor(), why)
    with output.progress(f"starting {store.id}"):
        waiting = foreground.begin(context.control, store, command_context.actor())
    print(f"{store.id} goes on from step {_step(store)}" + (f"; it waits: {waiting}" if waiting else ""))


@verb(app, "slipway rm tiny-dec --apply", section=SECTION, changes=True)
def rm(
    training: Id,
    apply: Annotated[bool, typer.Option("--apply", help="Let it go; without, say what would be removed.")] = False,
    why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "removed by hand",
    json: AsJson = False,
) -> None:
    """Delete a training that has ended.

    Its checkpoints are let go, and the hourly retention removes those that no model, branch or reader refers to; until
    then `slipway resume` keeps them. Its ledger and its incidents stay.
    """
    from slipway.operations import deleting

    context = command_context.current()
    store = context.training(training, lambda candidate: candidate.read().over, "training that has ended")
    if store.id not in context.stores(trials=False):
        raise ValueError(
            f"trial {store.id}: found a trial, expected a training: its sweep removes what it needs no more"
        )
    arguments = context.trainings, store, context.tiers, context.tracking
    with output.progress(f"looking at what refers to {store.id}"):
        deletion = deleting.delete(*arguments, command_context.actor(), why) if apply else deleting.outlook(*arguments)
    if json:
        return output.print_json({**vars(deletion), "applied": apply})
    print(f"{store.id}: {deletion.sentence()}" if apply else f"{store.id}: with --apply, {deletion.sentence()}")


def _stop(prefix: str, why: str) -> None:
    from slipway.resources.trainings import foreground

    context = command_context.current()
    store = context.training(prefix, lambda candidate: candidate.read().unfinished, "running training")
    if warning := foreground.grace_warning(store):
        output.note(warning)
    with output.progress(f"stopping {store.id}: its job saves a last checkpoint"):
        step = foreground.stop(context.control, store, command_context.actor(), why)
    print(f"{store.id} is stopped at step {step}; to go on: slipway resume {store.id}")


def _is_down(store: "TrainingStore") -> bool:
    """Whether it was stopped, or failed for good."""
    facts = store.read()
    return facts.over and not facts.succeeded


def _begun(store: "TrainingStore") -> bool:
    return store.newest_claim() is not None


def _step(store: "TrainingStore") -> int:
    commits = store.commits()
    return commits[-1].step if commits else 0


def _none(offered: int) -> str:
    more = f"; {offered} are offered: slipway ls --all" if offered else ""
    return f"no training has been wanted yet{more}; to start one: slipway run RECIPE"
