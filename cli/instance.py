"""The instance on this machine: the demo, the UI in the foreground or detached, a folder of recipes of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.cli import command_context, output
from slipway.cli.verbs import AsJson, VerbInterrupted, group, verb

app = group("The instance on this machine.")
SECTION = "Instance"
NOT_ON_CLUSTER = "a cluster's instance is installed by its chart"


@verb(app, "SLIPWAY_HOME=/data/slipway slipway demo", section=SECTION)
def demo(
    serve: Annotated[bool, typer.Option("--serve", help="Let the champion answer on afterwards.")] = False,
) -> None:
    """Make everything that the recipes lead to.

    From corpus to a champion that answers, through the daemon and its sensors; what is made already is not made again.
    """
    home = command_context.current().embedded(NOT_ON_CLUSTER)
    from slipway.deploy.embedded.serve import port
    from slipway.recipes.load import load, recipes_folder

    recipes = load(recipes_folder())
    chosen = port()
    from slipway.deploy.embedded import demo

    try:
        code = demo.run(recipes, home, chosen, serve)
    except KeyboardInterrupt:
        raise VerbInterrupted("everything made so far is kept, the next run goes on from there") from None
    raise typer.Exit(code)


@verb(app, "SLIPWAY_PORT=3001 slipway dev", section=SECTION)
def dev() -> None:
    """Run the instance in this terminal, until Ctrl-C.

    The UI is on http://127.0.0.1:3000 (SLIPWAY_PORT). Trainings go on when it ends.
    """
    home = command_context.current().embedded(NOT_ON_CLUSTER)
    from slipway.deploy.embedded.serve import port, serve

    port()
    for training in serve(home):
        print(f"\n{training} goes on; to stop it: slipway stop {training}")


@verb(app, "slipway up --json", section=SECTION)
def up(json: AsJson = False) -> None:
    """Start the instance, detached from this terminal.

    It returns when the UI answers on SLIPWAY_PORT (3000); `slipway down` ends it.
    """
    home = command_context.current().embedded(NOT_ON_CLUSTER)
    from slipway.deploy.embedded import serve

    serve.port()
    with output.progress("starting the instance"):
        started = serve.up(home)
    if json:
        return output.print_json(started)
    print(f"Slipway is at {started.url}; slipway down ends it (home: {home.root})")


@verb(app, "slipway down", section=SECTION)
def down() -> None:
    """End the instance; trainings go on without it."""
    home = command_context.current().embedded(NOT_ON_CLUSTER)
    from slipway.deploy.embedded import jobs, serve

    with output.progress("ending the instance"):
        ended = serve.down(home)
    print(f"the instance of {home.root} has ended" if ended else f"no instance runs in {home.root}")
    for training in sorted({name.rpartition("-i")[0] for name in jobs.live(home)}):
        print(f"{training} goes on; to stop it: slipway stop {training}")


@verb(app, "slipway init my-recipes", section=SECTION)
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to make, or an empty one.")],
) -> None:
    """Make a folder of recipes of your own.

    With a commented example of each kind. Whatever is called in the folder uses it, and so does an instance with
    SLIPWAY_RECIPES=FOLDER.
    """
    from slipway.recipes.user_folder import make

    for path in make(folder):
        print(path)
    print(f"\nto use it: cd {folder}; slipway recipes check; slipway demo")
