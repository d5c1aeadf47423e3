"""Names of a version's objects on a cluster: whoever makes the objects and whoever asks them agree here."""

from slipway.serving.records import ServedVersion


def service_name(model: str, version: ServedVersion) -> str:
    """The name of a version's objects: 63 characters at most, as a Service's is."""
    plain = "".join(each if each.isalnum() and each.isascii() else "-" for each in model.lower())
    return f"serve-{plain[:40].strip('-')}-{version.checkpoint[:12]}"
