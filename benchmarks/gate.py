"""The deployment gate: everything about a deployment that can be checked without a cluster, and how long it takes.

``python -m benchmarks.gate [--tools FOLDER]`` renders every overlay, runs the tests of the objects (schemas, Pod
Security, network policies, rights, references), checkov over the rendered objects and the images, and actionlint and
zizmor over the workflows. It prints the seconds of each part and of the whole, and what the objects come to; it ends
with 1 where a part found something. `make gate` puts the linters into FOLDER.

``python -m benchmarks.gate --chart NAME=FOLDER ...`` counts the same in other charts, rendered by default. checkov's
findings are counted here without the exceptions of ours, so that all charts meet the same checks.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from slipway.deploy.cluster import render
from tests.deploy.restricted import violations

ROOT = Path(__file__).resolve().parent.parent
AIM_SECONDS = 90.0
GOLDEN = "tests/kubernetes/test_golden.py"
Objects = list[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tools", type=Path, help="the folder of checkov, actionlint and zizmor")
    parser.add_argument("--chart", action="append", default=[], metavar="NAME=FOLDER", help="another chart to count in")
    options = parser.parse_args()
    charts = {
        name: rendered(Path(folder)) for name, _, folder in (argument.partition("=") for argument in options.chart)
    }
    peers = {name: examined(objects, options.tools) for name, objects in charts.items()}
    begun = time.perf_counter()
    failed = [name for name, command in parts(options.tools) if not passes(name, command)]
    show("whole gate", "s", time.perf_counter() - begun, {}, AIM_SECONDS)
    objects = [
        document
        for file in sorted((render.RENDERED / "h200-32").glob("*.yaml"))
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)
    ]
    for metric, number in examined(objects, options.tools).items():
        show(metric, "objects", number, {name: metrics[metric] for name, metrics in peers.items()}, None)
    if failed:
        sys.exit(f"the gate is shut: {', '.join(failed)}")


def parts(tools: Path | None) -> Iterator[tuple[str, list[str]]]:
    """The commands of the gate by name; those of linters only where there are any."""
    python = [sys.executable, "-m"]
    yield "render", [*python, "slipway.cli", "cluster", "render"]
    yield "committed", ["git", "diff", "--exit-code", "--stat", "--", "deploy"]
    yield (
        "objects",
        [*python, "pytest", "-q", "-p", "no:cacheprovider", "-m", "not nightly", "tests/deploy", GOLDEN],
    )
    if tools is not None:
        yield (
            "checkov objects",
            [str(tools / "checkov"), "--config-file", "deploy/checkov.yaml", "-d", "deploy/rendered"],
        )
        yield "checkov images", [str(tools / "checkov"), "--config-file", "deploy/checkov.yaml", "-d", "deploy/images"]
        yield "checkov workflows", [str(tools / "checkov"), "--config-file", "deploy/checkov.yaml", "-d", ".github"]
        workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
        yield "actionlint", [str(tools / "actionlint"), *workflows]
        yield "zizmor", [str(tools / "zizmor"), "--offline", "--quiet", *workflows]


def passes(name: str, command: list[str]) -> bool:
    """Run one part and print its seconds; what it says of a fault goes to standard error."""
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    show(name, "s", time.perf_counter() - begun, {}, None)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
    return done.returncode == 0


def rendered(chart: Path) -> Objects:
    """Another chart's objects with its own values. Raises helm_python.HelmError."""
    from helm_python import Chart

    with Chart.load(chart) as loaded:
        texts = loaded.render({}, name="release", namespace="release")
    objects = [text for name, text in texts.items() if not name.endswith("NOTES.txt")]
    return [document for text in objects for document in yaml.safe_load_all(text) if document]


def examined(objects: Objects, tools: Path | None) -> dict[str, int]:
    """What the objects come to, and, where there is a folder of tools, what checkov finds in them."""
    return counted(objects) | ({} if tools is None else {"findings of checkov": findings(objects, tools)})


def findings(objects: Objects, tools: Path) -> int:
    """Checks of checkov that fail, with none left out. Raises ValueError when checkov gives no report."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "objects.yaml").write_text(yaml.safe_dump_all(objects))
        command = [str(tools / "checkov"), "--framework", "kubernetes", "--output", "json", "--directory", folder]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    try:
        return int(json.loads(done.stdout)["summary"]["failed"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"checkov: found no report, expected one; it said {done.stderr.strip()[-500:]}") from None


def counted(objects: Objects) -> dict[str, int]:
    """What the objects come to: pods, those that are not restricted, policies, and verbs that roles grant."""
    pods = [pod for document in objects if (pod := pod_of(document)) is not None]
    roles = [document for document in objects if document["kind"] in ("Role", "ClusterRole")]
    verbs = [
        (verb, resource)
        for role in roles
        for rule in role.get("rules") or ()
        for verb in rule.get("verbs") or ()
        for resource in rule.get("resources") or ()
    ]
    return {
        "kinds of pods": len(pods),
        "kinds of pods that are not restricted": sum(bool(violations(pod)) for pod in pods),
        "network policies": sum(document["kind"] == "NetworkPolicy" for document in objects),
        "verbs on resources": len(verbs),
        "wildcards in rights": sum("*" in verb for verb in verbs),
        "verbs on secrets": sum(resource == "secrets" for _, resource in verbs),
    }


def pod_of(document: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of the pods that an object makes; None for one that makes none."""
    spec = document.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)  # a CronJob
    pod: dict[str, Any] | None = (
        spec.get("template", {}).get("spec") if isinstance(spec.get("template"), dict) else None
    )
    return pod if pod and "containers" in pod else None


def show(metric: str, unit: str, value: float, peers: dict[str, int], aim: float | None) -> None:
    line = {"benchmark": "gate", "metric": metric, "unit": unit, "better": "lower", "ours": value, "peers": peers}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
