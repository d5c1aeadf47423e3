"""Notifications by hand: whether each address takes a message."""

from slipway.cli import command_context, output
from slipway.cli.verbs import AsJson, group, verb

app = group("Notifications: whom Slipway tells of incidents, and of what waits for a person.")


@verb(app, "slipway notify test", changes=True)
def test(json: AsJson = False) -> None:
    """Send a message to every address.

    An address is named by its kind and its line in the file, since it holds a password or a token.
    """
    from slipway.resources.notify import endpoints

    outcomes: dict[str, str] = {}
    with output.progress("sending to each address"):
        outcomes.update(endpoints.trial_outcomes(command_context.current().notifications, command_context.actor()))
    if json:
        output.print_json(outcomes)
    else:
        output.print_table(("address", "outcome"), list(outcomes.items()))
    if failed := [name for name, outcome in outcomes.items() if outcome != endpoints.SENT]:
        raise ValueError(f"not sent to {', '.join(failed)}")
