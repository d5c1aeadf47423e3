"""The objects of each cluster as plain files, for `kubectl apply -f` without Helm.

`deploy/rendered/` is made from the chart and the overlays; never edit it.
"""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from slipway.deploy.cluster.values import CHART
from slipway.resources.kubernetes.objects import SERVICES
from slipway.resources.launchers.kubernetes import access
from slipway.resources.serving.objects import KINDS

DEPLOY = Path(__file__).parent.parent.resolve()
OVERLAYS = DEPLOY / "platform" / "overlays"
RENDERED = DEPLOY / "rendered"
CLUSTERS = tuple(sorted(path.name for path in OVERLAYS.iterdir()))
NAME = NAMESPACE = "slipway"
HEADER = "# Made by `slipway cluster render`; edit {source} instead.\n"
RIGHTS = CHART / "templates" / "_rights.tpl"
RIGHTS_HEADER = "Made by `slipway cluster render` from what launchers and serving make; edit that instead."


def values_of(cluster: str) -> dict[str, Any]:
    """The chart's values of a cluster."""
    return dict(yaml.safe_load((OVERLAYS / cluster / "values.yaml").read_text()))


def workloads(values: dict[str, Any]) -> str:
    """The chart's objects. Raises helm_python.HelmError for values that the chart refuses."""
    texts = [text for _, text in sorted(_rendered(values).items()) if "\nkind: " in text]
    return "\n---\n".join(text.strip().removeprefix("---\n") for text in texts) + "\n"


def helm_notes(values: dict[str, Any]) -> str:
    """The notes that Helm prints after the installation. Raises the same errors as `workloads`."""
    [text] = [text for path, text in _rendered(values).items() if path.endswith("/NOTES.txt")]
    return text


def cluster_objects(folder: Path) -> str:
    """The objects of an overlay. Raises CalledProcessError when kustomize refuses the overlay."""
    command = ["kubectl", "kustomize", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def files(cluster: str) -> dict[Path, str]:
    """The texts of the files of `deploy/rendered/` for a cluster, by path."""
    source = f"deploy/platform/overlays/{cluster}"
    texts = {"cluster": cluster_objects(OVERLAYS / cluster), "workloads": workloads(values_of(cluster))}
    return {
        RENDERED / cluster / f"{name}.yaml": HEADER.format(source=source) + text.rstrip() + "\n"
        for name, text in texts.items()
    }


def write() -> list[Path]:
    """Write the chart's permissions and `deploy/rendered/`. Returns the files."""
    RIGHTS.write_text(rights_template())
    texts = {path: text for cluster in CLUSTERS for path, text in files(cluster).items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [RIGHTS, *texts]


def serving_rights() -> list[dict[str, Any]]:
    """The RBAC rules for serving objects, without Services, which `access.rights` already covers."""
    return [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["create", "list", "patch", "delete"]}
        for kind in KINDS
        if kind != SERVICES
    ]


def rights_template() -> str:
    """The text of `templates/_rights.tpl`."""
    rules = yaml.safe_dump([*access.rights(), *serving_rights()], default_flow_style=None, sort_keys=False)
    return f'{{{{- /* {RIGHTS_HEADER} */ -}}}}\n{{{{- define "slipway.launcherRights" -}}}}\n{rules}{{{{- end }}}}\n'


def _rendered(values: dict[str, Any]) -> dict[str, str]:
    """The text of each of the chart's templates, by path."""
    from helm_python import Chart

    with Chart.load(DEPLOY / "chart") as chart:
        return dict(chart.render(values, name=NAME, namespace=NAMESPACE))
