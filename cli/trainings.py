"""Trainings: what runs and where it stands, and what a person wants of it."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli import complete, output, place
from cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from resources.trainings.store import TrainingStore

app = group("Trainings.")
SECTION = "Trainings"

Id = Annotated[
    str,
    typer.Argument(metavar="TRAINING", help="Its id, or the beginning of it.", autocompletion=complete.trainings),
]


@verb(app, "slipway ls --json", section=SECTION)
def ls(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also trials, and trainings that are not wanted yet.")
    ] = False,
    sql: Annotated[
        str, typer.Option(metavar="QUERY", help="Answer this over the tables trainings, spent and lost.")
    ] = "",
    json: AsJson = False,
) -> None:
    """List the trainings and where each stands.

    With --sql, what their time was spent on: SELECT cause, sum(seconds) FROM lost GROUP BY cause.
    """
    from resources.trainings.summary import summary

    here = place.here()
    if sql:
        return _answer(here, sql, everything, json)
    with output.progress("reading the trainings"):
        found = [summary(store, here.launcher) for store in here.stores(trials=everything).values()]
    shown = [each for each in found if everything or each.state != "offered"]
    if json:
        return output.print_json(shown)
    head = ("training", "state", "step", "checkpoint", "wanted", "since", "why")
    output.print_table(
        head,
        [
            (
                each.id,
                each.state,
                f"{each.step}/{each.steps}" if each.steps else each.step,
                each.checkpoint or "-",
                each.wanted or "-",
                output.when(each.since),
                each.why,
            )
            for each in shown
        ],
    )
    if not shown:
        output.note(_none(len(found)))


@verb(app, "slipway show tiny-dec", section=SECTION)
def show(training: Id, json: AsJson = False) -> None:
    """Show a training: what it is, and where it stands."""
    from resources.trainings import incident_reports, post_mortem, updating
    from resources.trainings.summary import summary

    here = place.here()
    store = here.training(training)
    incidents = incident_reports.of_all([store])
    specification, told = store.specification(), summary(store, here.launcher)
    changes, branch = updating.known(store.folder), specification.branch
    if json:
        return output.print_json(
            {
                **vars(told),
                "recipe": specification.recipe,
                "snapshot": specification.snapshot,
                "numbers": specification.numbers,
                "origin": store.terms().origin,
                "changes": [{**vars(each), "state": each.state} for each in changes],
                "folder": store.folder,
                "checkpoints": [{"step": commit.step, "manifest": commit.manifest} for commit in store.commits()],
                "incidents": incidents,
                "account": _account(store),
            }
        )
    fields = {
        "training": told.id,
        "recipe": specification.recipe,
        "snapshot": specification.snapshot,
        "state": f"{told.state} since {output.when(told.since)}",
        "step": f"{told.step} of {told.steps}" if told.steps else told.step,
        "wanted": told.wanted or "not yet",
        "why": told.why or "-",
        "incarnation": told.incarnation,
        "nodes": ", ".join(told.nodes) or "-",
        "checkpoints": ", ".join(str(commit.step) for commit in store.commits()) or "none",
        "folder": store.folder,
        **({"continues": f"{branch.training}@{branch.step}"} if branch else {}),
        **_spent(store),
    }
    output.print_fields(fields)
    for name, (old, new) in store.terms().origin.get("changed", {}).items() if branch else ():
        print(f"branched with {name}: {old!r} to {new!r}")
    for change in changes:
        pairs = ", ".join(f"{name}: {old!r} to {new!r}" for name, (old, new) in change.pairs.items())
        print(f"change {change.number} by {change.by} ({change.why}): {pairs}; {change.state}")
    for each in incidents:
        print(f"incident {each.id} {output.when(each.at)}: {post_mortem.headline(each)}; {each.state}")


@verb(app, "slipway watch tiny-dec", section=SECTION)
def watch(training: Id) -> None:
    """Follow a training until it ends; Ctrl-C leaves it running."""
    here = place.here()
    follow(here, here.training(training, _begun, "started training"))


def follow(here: place.Workplace, store: "TrainingStore", bring: bool = False) -> None:
    """Print what happens to a training until it has ended, or is wanted no more and has.

    With `bring`, also take the steps that are due to it, as an instance would. Raises ValueError when it failed.
    """
    from resources.trainings.news import until_ended

    try:
        for line in until_ended(store, here.control if bring else None, place.who()):
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


@verb(app, "slipway logs tiny-dec --node node-1", section=SECTION)
def logs(
    training: Id,
    node: Annotated[
        str, typer.Option(help="Of this node alone; by default of all.", autocompletion=complete.nodes)
    ] = "",
    incarnation: Annotated[int | None, typer.Option(help="Of an earlier start; by default of the newest.")] = None,
    kilobytes: Annotated[int, typer.Option(min=1, help="How much of the end of each node's log.")] = 64,
    json: AsJson = False,
) -> None:
    """Print the end of what each node of a training wrote."""
    from resources.trainings import summary

    here = place.here()
    store = here.training(training, _begun, "started training")
    found = summary.logs(store, here.launcher, incarnation, kilobytes * 1024)
    if node and node not in found:
        raise ValueError(f"node {node}: found no log of it, expected one of {', '.join(found) or '(there is none)'}")
    chosen = {node: found[node]} if node else found
    if json:
        return output.print_json(chosen)
    for name, text in chosen.items():
        print(f"== {name} ==\n{text.rstrip()}")


@verb(app, "slipway stop tiny-dec", section=SECTION)
def stop(training: Id, why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "asked to stop") -> None:
    """Stop a training, with a checkpoint of its last step.

    `slipway resume` goes on from there.
    """
    _stop(training, why)


@verb(app, "slipway pause tiny-dec", section=SECTION)
def pause(training: Id) -> None:
    """Stop a training that you mean to resume.

    As `stop` does, with the pause on record as the reason.
    """
    _stop(training, "paused")


@verb(app, "slipway resume tiny-dec", section=SECTION)
def resume(training: Id, why: Annotated[str, typer.Option(help="The reason, kept on record.")] = "resumed") -> None:
    """Go on with a training that was stopped or given up.

    From its newest checkpoint.
    """
    from resources.trainings import by_hand

    here = place.here()
    store = here.training(training, _is_down, "stopped training")
    if store.id not in here.stores(trials=False):
        raise ValueError(f"trial {store.id}: found a trial, expected a training: its sweep starts it again by itself")
    by_hand.resume(here.trainings, store, place.who(), why)
    with output.progress(f"starting {store.id}"):
        waiting = by_hand.begin(here.control, store, place.who())
    print(f"{store.id} goes on from step {_step(store)}" + (f"; it waits: {waiting}" if waiting else ""))


def _answer(here: place.Workplace, query: str, trials: bool, json: bool) -> None:
    """Print what a query over all trainings' accounts gives."""
    from resources.trainings import account_tables

    with output.progress("reading the ledgers"):
        names, rows = account_tables.ask(here.stores(trials=trials).values(), query)
    if json:
        return output.print_json([dict(zip(names, map(_plain, row), strict=True)) for row in rows])
    output.print_table(names, [[_told(value) for value in row] for row in rows])
    if not rows:
        output.note("the query found no row")


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | None) else str(value)


def _told(value: object) -> object:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else value


def _account(store: "TrainingStore") -> dict[str, object] | None:
    """What the training's time was spent on, for a script; None before it was wanted."""
    from resources.trainings import accounts

    if (found := accounts.of_if_any(store.folder)) is None:
        return None
    account, figures = found
    return {
        "wall_seconds": account.wall,
        "seconds": account.seconds,
        "interruptions": account.interruptions,
        "notes": list(account.notes),
        **vars(figures),
    }


def _spent(store: "TrainingStore") -> dict[str, object]:
    """Fields on what the training's time was spent on; none before it was wanted."""
    from resources.trainings import accounts
    from trainer.record.accounting import buckets

    found = accounts.of_if_any(store.folder)
    if found is None or found[0].wall <= 0:
        return {}
    account, figures = found
    seconds = account.seconds
    ordered = sorted(seconds, key=lambda name: -seconds[name])
    parts = ", ".join(f"{buckets.TITLES[name]} {seconds[name] / account.wall:.1%}" for name in ordered if seconds[name])
    shares = {"ETTR (Meta)": figures.ettr_meta, "ETTR (ByteDance)": figures.ettr_bytedance}
    shares |= {"goodput": figures.goodput, "MFU": figures.mfu}
    lost = sum(each.seconds for each in account.interruptions)
    return {
        "time": f"{account.wall:,.1f} s: {parts}",
        **{name: f"{share:.1%}" for name, share in shares.items() if share is not None},
        **({"lost": f"{lost:,.1f} s to {len(account.interruptions)} interruptions"} if account.interruptions else {}),
        **({"away": "; ".join(account.notes)} if account.notes else {}),
    }


def _stop(given: str, why: str) -> None:
    from resources.trainings import by_hand

    here = place.here()
    store = here.training(given, lambda each: each.read().unfinished, "running training")
    with output.progress(f"stopping {store.id}: its job saves a last checkpoint"):
        step = by_hand.stop(here.control, store, place.who(), why)
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
