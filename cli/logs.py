"""Logs: what all ranks of a training wrote, of all its incarnations, in one place."""

import json as json_lines
import time
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, completion_names, names, output
from slipway.cli.trainings import SECTION, Id
from slipway.cli.verbs import AsJson, group, verb

if TYPE_CHECKING:
    from slipway.resources.trainings.logs import LogLine

app = group("Logs.")
FOLLOW_SECONDS = 1.0


@verb(app, "slipway logs tiny-dec --since 10m --grep loss", section=SECTION)
def logs(
    training: Id,
    rank: Annotated[int | None, typer.Option(min=0, help="Of this rank alone; by default of all.")] = None,
    node: Annotated[
        str, typer.Option(help="Of this node alone; by default of all.", autocompletion=completion_names.nodes)
    ] = "",
    incarnation: Annotated[int | None, typer.Option(help="Of one start alone; by default of all.")] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help="What was written since, such as 10m or 12h.")] = "",
    grep: Annotated[str, typer.Option(help="The lines that have this text.")] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the training has ended, or Ctrl-C.")
    ] = False,
    kilobytes: Annotated[int, typer.Option(min=1, help="How much of the end of each node's log.")] = 64,
    json: AsJson = False,
) -> None:
    """Print what the ranks of a training wrote, in order.

    All starts and nodes, each line with its time, start, node and rank. With --json, a JSON object a line.
    """
    from slipway.resources.trainings import logs as training_logs

    context = command_context.current()
    store = context.training(training, lambda candidate: candidate.newest_claim() is not None, "started training")
    begun = time.time() - names.seconds(since, "--since") if since else 0.0
    followed = training_logs.LogFollower()
    has_printed = False
    while True:
        last = not follow or store.read().over
        sources = training_logs.sources(store, context.launcher, kilobytes * 1024, incarnation)
        known = {source.node: source for source in sources}
        if node and node not in known:
            raise ValueError(f"node {node}: found no log of it, expected one of {', '.join(known) or '(none)'}")
        chosen = [source for source in sources if node in ("", source.node)]
        for line in training_logs.merged(followed.new(chosen, last) if follow else chosen, begun, rank, grep):
            print(_json(store.id, line) if json else _plain(line), flush=follow)
            has_printed = True
        if last:
            return None if has_printed else output.note(f"{store.id}: no line of its logs is as it was asked for")
        try:
            time.sleep(FOLLOW_SECONDS)
        except KeyboardInterrupt:
            return


def _plain(line: "LogLine") -> str:
    rank = "-" if line.rank is None else line.rank
    return f"{output.when(line.at)} i{line.incarnation} {line.node} r{rank} | {line.text}"


def _json(training: str, line: "LogLine") -> str:
    return json_lines.dumps({"training": training, **vars(line)}, ensure_ascii=False)
