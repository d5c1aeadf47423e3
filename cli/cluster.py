"""The cluster's files: the objects of each cluster as plain YAML, and the schema of the chart's values."""

from slipway.cli import output
from slipway.cli.verbs import AsJson, group, verb

app = group("The files that install Slipway on a cluster: render, schema.")


@verb(app, "slipway cluster render")
def render(json: AsJson = False) -> None:
    """Write the objects of each cluster into deploy/rendered/.

    From the chart and the overlays.
    """
    from slipway.deploy.cluster import render as rendering

    with output.progress("rendering"):
        written = rendering.write()
    output.print_json(written) if json else print("\n".join(map(str, written)))


@verb(app, "slipway cluster schema")
def schema() -> None:
    """Write the schema of the chart's values beside the chart."""
    from slipway.deploy.cluster import values

    values.SCHEMA.write_text(values.schema())
    print(values.SCHEMA)
