"""``python -m deploy.cluster schema | render``: write the chart's schema, or the objects of each cluster."""

import sys

from deploy.cluster import render, values


def main(arguments: list[str]) -> int:
    if arguments not in (["schema"], ["render"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["schema"]:
        values.SCHEMA.write_text(values.schema())
    else:
        render.write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
