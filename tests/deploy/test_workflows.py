"""The workflows of CI and the deployment gate: pinned, with the least permissions, and with few reasoned exceptions."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import gate
from slipway.deploy.cluster import render
from slipway.deploy.cluster.render import DEPLOY

pytestmark = pytest.mark.pure

WORKFLOWS = sorted((DEPLOY.parent / ".github" / "workflows").glob("*.yml"))
MAY_WRITE = {
    "image": {"packages", "id-token", "attestations"},
    "overlays": {"contents", "pull-requests"},
}
"""The jobs that may write anything, and what."""


def jobs(file: Path) -> dict[str, Any]:
    jobs_by_name: dict[str, Any] = yaml.safe_load(file.read_text())["jobs"]
    return jobs_by_name


def test_there_are_workflows_for_changes_and_for_images():
    assert [file.stem for file in WORKFLOWS] == ["check", "images"]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_every_action_is_pinned_by_its_hash_and_says_its_version(file: Path):
    used = re.findall(r"uses: (.+)", file.read_text())
    assert (
        used
        and [reference for reference in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v?\d+\.\d+\.\d+", reference)]
        == []
    )


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_has_no_permissions_and_a_job_only_what_it_needs(file: Path):
    assert yaml.safe_load(file.read_text())["permissions"] == {}
    for name, job in jobs(file).items():
        writes = {what for what, how in job["permissions"].items() if how == "write"}
        assert writes == MAY_WRITE.get(name, set()), name
        assert job["timeout-minutes"], name


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_no_step_puts_an_expression_into_a_shell_or_keeps_the_token(file: Path):
    for job in jobs(file).values():
        for step in job["steps"]:
            assert "${{" not in step.get("run", "")
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_a_release_is_built_listed_scanned_signed_and_has_its_provenance():
    steps = jobs(WORKFLOWS[1])["image"]["steps"]
    done = [
        step["uses"].partition("@")[0].split("/")[-1] if "uses" in step else step["run"].split()[0] for step in steps
    ]
    expected = ["build-push-action", "sbom-action", "trivy-action", "cosign", "attest-build-provenance"]
    assert [action for action in done if action in expected] == expected


def test_findings_that_stay_are_at_most_ten_each_with_its_reason():
    text = (DEPLOY / "checkov.yaml").read_text()
    skipped = yaml.safe_load(text)["skip-check"]
    reasons = re.findall(r"^  - (CKV\w+) # \S.{20,}$", text, flags=re.M)
    assert skipped == reasons and len(skipped) <= 10


def test_the_table_of_the_documentation_has_what_is_rendered():
    files = sorted((render.RENDERED / "h200-32").glob("*.yaml"))
    counts = gate.counted(
        [document for file in files for document in yaml.load_all(file.read_text(), yaml.CSafeLoader)]
    )
    text = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text.partition("## Beside other charts")[2], flags=re.M))
    pods, exceptions, policies, *rights = counts.values()
    assert (rows["kinds of pods"], rows["exceptions: not `restricted`"]) == (str(pods), str(exceptions))
    assert rows["network policies"] == str(policies)
    assert rows["verbs on resources (wildcards; on secrets)"] == "{} ({}; {})".format(*rights)


def test_the_gate_counts_pods_that_are_not_restricted_and_rights_that_are_wide():
    spec = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    rule = {"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "*"]}
    counts = gate.counted(
        [
            {"kind": "Deployment", "spec": spec},
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": spec}}},
            {"kind": "ClusterRole", "rules": [rule]},
            {"kind": "NetworkPolicy", "spec": {}},
        ]
    )
    assert [*counts.values()] == [2, 2, 1, 4, 2, 2]
