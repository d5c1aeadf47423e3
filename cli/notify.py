"""Notifications by hand: whether each address takes a message."""

from cli import output, place
from cli.verbs import AsJson, group, verb

app = group("Notifications: whom Slipway tells of incidents, and of what waits for a person.")


@verb(app, "slipway notify test", changes=True)
def test(json: AsJson = False) -> None:
    """Send a message to every address.

    An address is named by its kind and its line in the file, since it holds a password or a token.
    """
    from pathlib import Path

    from resources.notify import endpoints
    from resources.notify.endpoints import NotSent
    from resources.notify.notices import NoticeMessage

    settings = place.here().notifications
    message = NoticeMessage("Slipway: a test", f"This address is told what happens ({place.who()}).", False)
    told: dict[str, str] = {}
    for endpoint in endpoints.read(Path(settings.urls_file)):
        with output.progress(f"sending to {endpoint.name}"):
            try:
                endpoint.send(message)
                told[endpoint.name] = "sent"
            except NotSent as error:
                told[endpoint.name] = str(error).removeprefix(f"{endpoint.name}: ")
    if json:
        output.print_json(told)
    else:
        output.print_table(("address", "outcome"), list(told.items()))
    if failed := [name for name, outcome in told.items() if outcome != "sent"]:
        raise ValueError(f"not sent to {', '.join(failed)}")
