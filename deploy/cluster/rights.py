"""The rights of the launchers as a template of the chart, made from what the launchers read and write."""

from typing import Any

import yaml

from slipway.deploy.cluster.values import CHART
from slipway.resources.kubernetes.objects import SERVICES
from slipway.resources.launchers.kubernetes import access
from slipway.resources.serving.objects import KINDS

RIGHTS = CHART / "templates" / "_rights.tpl"
HEADER = "Made by `slipway cluster render` from what launchers and serving make; edit that instead."


def serving() -> list[dict[str, Any]]:
    """The rules for the objects that serve, but for Services, which launchers make too."""
    return [
        {"apiGroups": [each.group], "resources": [each.plural], "verbs": ["create", "list", "patch", "delete"]}
        for each in KINDS
        if each != SERVICES
    ]


def template() -> str:
    """The text of `templates/_rights.tpl`."""
    rules = yaml.safe_dump([*access.rights(), *serving()], default_flow_style=None, sort_keys=False)
    return f'{{{{- /* {HEADER} */ -}}}}\n{{{{- define "slipway.launcherRights" -}}}}\n{rules}{{{{- end }}}}\n'
