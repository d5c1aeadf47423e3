"""Served models: serve a version, go back to the one before, stop; who answers; and asking a model."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipway.cli import command_context, models, names, output
from slipway.cli.models import Model
from slipway.cli.verbs import AsJson, verb
from slipway.trainer.base import regular_file

if TYPE_CHECKING:
    from pathlib import Path

    from slipway.assets.serving import Serving
    from slipway.serving.records import ServedState, ServingRecords

SECTION = "Serving"
SETTLE_SECONDS = 300.0
TOKENS = 64
"""So many new tokens a question is answered with, where the model has room for them."""


@verb(models.app, "slipway models serve slipway-tiny 3 --percent 10", section=SECTION, changes=True)
def serve(
    model: Model,
    version: Annotated[
        int | None,
        typer.Argument(metavar="[VERSION]", help="By default the champion, and each later one once it is promoted."),
    ] = None,
    percent: Annotated[
        float, typer.Option(metavar="SHARE", help="Of new requests, until it is compared with the version before.")
    ] = 100.0,
    back: Annotated[bool, typer.Option("--back", help="Let the version answer again that answered before.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Let nothing answer any more.")] = False,
    why: Annotated[str, typer.Option(metavar="WORDS", help="The reason, for the record.")] = "asked by hand",
    json: AsJson = False,
) -> None:
    """Have a model answer behind OpenAI's API.

    The version before answers until the new one is ready; no request is lost. With --percent the new version gets that
    share of the requests, and all of them once nothing speaks against it, or none.
    """
    from slipway.resources.serving import wishes

    if back and stop:
        raise typer.BadParameter("expected one of --back and --stop")
    try:
        wishes.check("stop" if stop else "back" if back else "serve", version, percent)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    serving = _serving()
    actor = command_context.actor()
    with output.progress(f"asking for {model}") as progress_line:
        if stop or back:
            name = names.resolved(model, serving.records.models(), "served model")
            state = serving.stop(name, actor, why) if stop else serving.back(name, actor, why)
        else:
            state = _serve(serving, model, version, percent, actor, why)
        progress_line.update(f"waiting for {state.model} to answer")
        wish = state.number
        state = serving.settle(state, SETTLE_SECONDS, serving.ensure)
    if state.number != wish and state.desired is not None:
        problem = f"{state.desired.by} has asked for something else meanwhile ({state.desired.why})"
        raise ValueError(f"model {state.model}: {problem}; look at it with: slipway models served")
    if json:
        return output.print_json(_served(serving.records, state.model))
    _print_outcome(serving.records, state)


@verb(models.app, "slipway models served", section=SECTION)
def served(json: AsJson = False) -> None:
    """Show which versions answer, and where."""
    from slipway.serving.records import ServingRecords

    records = ServingRecords(command_context.current().durable)
    models_served = [_served(records, model) for model in records.models()]
    if json:
        return output.print_json(models_served)
    rows = [
        (
            entry["model"],
            share["version"],
            f"{share['share']:.0%}",
            ", ".join(filter(None, ("ready" if share["ready"] else "", share["note"]))),
            entry["url"],
        )
        for entry in models_served
        for share in entry["shares"]
    ]
    output.print_table(("model", "version", "share", "state", "url"), rows)
    for entry in models_served:
        if entry["problem"]:
            output.note(f"{entry['model']}: {entry['problem']}")
    if not models_served:
        output.note("no model is served; to serve one: slipway models serve MODEL")


@verb(models.app, "slipway models ask slipway-tiny 'def main(' --tokens 48", section=SECTION)
def ask(
    model: Model,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What the model continues.")],
    tokens: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=1, help="New tokens at most; by default 64, or half of the model's length."),
    ] = None,
    temperature: Annotated[float, typer.Option(metavar="NUMBER", min=0.0, max=2.0, help="0 for the likeliest.")] = 0.8,
    json: AsJson = False,
) -> None:
    """Ask a served model; its answer appears as it is made."""
    from slipway.serving import client
    from slipway.serving.records import ServingRecords

    records = ServingRecords(command_context.current().durable)
    name = names.resolved(model, records.models(), "served model")
    answering = records.answering(name)
    if answering is None or not answering.shares:
        raise ValueError(f"model {name}: nothing answers; to serve it: slipway models serve {name}")
    max_tokens = tokens or fitting(records.durable / answering.shares[0].version.folder)
    request = {"model": name, "prompt": prompt, "max_tokens": max_tokens, "temperature": temperature}
    if json:
        return output.print_json(client.complete(answering.url, request))
    print(prompt, end="", flush=True)
    for piece in client.stream(answering.url, request):
        print(piece, end="", flush=True)
    print()


def fitting(export: "Path") -> int:
    """So many new tokens are asked for unless a person says how many: a short model has room for no more."""
    from slipway.trainer.base import parsing

    try:
        shape = parsing.value(regular_file.read(export / "config.json"))
    except OSError:
        return TOKENS  # the server knows better, and says so
    longest = shape.get("max_position_embeddings") or shape.get("n_positions") or 2 * TOKENS
    return max(1, min(TOKENS, longest // 2))


def _serve(serving: "Serving", model: str, version: int | None, percent: float, actor: str, why: str) -> "ServedState":
    from slipway.serving.records import SwitchPolicy

    registered = models.chosen(model, version)
    return serving.serve(registered, SwitchPolicy(share=percent / 100), version is None, actor, why)


def _serving() -> "Serving":
    from slipway.assets.serving import Serving

    context = command_context.current()
    return Serving(context.tiers, context.compute, output.note)


def _served(records: "ServingRecords", model: str) -> dict[str, Any]:
    """What is wanted of a model and what answers, as JSON has it."""
    state = records.state(model)
    answering = records.answering(model)
    current = answering if answering is not None and answering.wish == state.number else None
    return {
        "model": model,
        "want": state.desired.want if state.desired else "stop",
        "follows": bool(state.desired and state.desired.follows),
        "verdict": state.verdict,
        "url": current.url if current else "",
        "shares": [
            {"version": share.version.named(model), "share": share.share, "ready": share.ready, "note": share.note}
            for share in (current.shares if current else ())
        ],
        "problem": current.problem if current else "",
    }


def _print_outcome(records: "ServingRecords", state: "ServedState") -> None:
    """Say what came of a wish. Raises ValueError where it was refused."""
    model = state.model
    answering = records.answering(state.model)
    if state.desired is None or state.desired.want == "stop":
        return print(f"{model}: nothing answers any more")
    version = state.desired.version
    assert version is not None
    if state.verdict is not None and state.verdict.outcome == "back":
        raise ValueError(f"{version.named(model)} does not answer: {state.verdict.why}")
    if answering is None or answering.wish != state.number or not any(entry.ready for entry in answering.shares):
        raise ValueError(f"{version.named(model)} is not ready yet; look at it with: slipway models served")
    share = next((entry.share for entry in answering.shares if entry.version == version), 0.0)
    print(f"{version.named(model)} answers {share:.0%} of the requests at {answering.url}")
    print(f"try it in a browser: {answering.url}/, or: slipway models ask {model} 'def main('")
