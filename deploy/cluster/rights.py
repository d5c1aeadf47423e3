"""The rights of the launchers as a template of the chart, made from what the launchers read and write."""

import yaml

from deploy.cluster.values import CHART
from resources.launchers.kubernetes import access

RIGHTS = CHART / "templates" / "_rights.tpl"
HEADER = "Made by `slipway cluster render` from resources/launchers/kubernetes/access.py; edit that instead."


def template() -> str:
    """The text of `templates/_rights.tpl`."""
    rules = yaml.safe_dump(access.rights(), default_flow_style=None, sort_keys=False)
    return f'{{{{- /* {HEADER} */ -}}}}\n{{{{- define "slipway.launcherRights" -}}}}\n{rules}{{{{- end }}}}\n'
