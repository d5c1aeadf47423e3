"""Every pod, whoever makes it: unprivileged, probed, bounded, from a pinned image, with secrets as files."""

import re
from collections.abc import Iterator

import pytest

from tests import schemas
from tests.deploy.dagster_runs import run_job, training_pod
from tests.deploy.rendering import FULL, VALUES, Object, of_kind, pod_templates, workloads
from tests.deploy.restricted import violations

PINNED = re.compile(r".+(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+)")
SECRET_NAMES = re.compile("PASSWORD|SECRET|TOKEN|ACCESS_KEY")


@pytest.fixture(params=VALUES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pods(case: str) -> dict[str, Object]:
    """The pod templates by who makes them."""
    runs = run_job(case)["spec"]["template"]
    return {**dict(pod_templates(workloads(case))), "runs": runs, "trainings": training_pod(case)}


def containers(pods: dict[str, Object]) -> Iterator[tuple[str, Object]]:
    for name, template in pods.items():
        for container in template["spec"]["containers"]:
            yield name, container


def test_is_restricted(pods: dict[str, Object]):
    assert {name: found for name, pod in pods.items() if (found := violations(pod["spec"]))} == {}


def test_privileges_are_noticed():
    spec = {"hostNetwork": True, "containers": [{"name": "c"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    assert len(violations(spec)) == 6


def test_all_share_one_user(case: str, pods: dict[str, Object]):
    users = {
        (pod["spec"]["securityContext"]["runAsUser"], pod["spec"]["securityContext"]["fsGroup"])
        for pod in pods.values()
    }
    assert users == {(2000, 2000) if case == "full" else (1000, 1000)}


def test_control_plane_cannot_write_to_its_images(pods: dict[str, Object]):
    writable = [
        name
        for name, container in containers(pods)
        if name != "trainings" and not container["securityContext"].get("readOnlyRootFilesystem")
    ]
    assert writable == []


def test_says_what_it_needs(pods: dict[str, Object]):
    for name, container in containers(pods):
        asked, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert name == "trainings" or {"cpu", "memory", "ephemeral-storage"} <= {*asked}
        assert asked.get("memory") == limits.get("memory")


def test_image_is_pinned(pods: dict[str, Object]):
    assert [container["image"] for _, container in containers(pods) if not PINNED.fullmatch(container["image"])] == []


def test_deployments_are_probed(case: str):
    for _, template in pod_templates(workloads(case)):
        for container in template["spec"]["containers"]:
            assert "startupProbe" in container and "livenessProbe" in container
            assert ("readinessProbe" in container) == ("ports" in container), "what serves says when it can"


def test_secrets_are_files(case: str, pods: dict[str, Object]):
    for _, container in containers(pods):
        assert "envFrom" not in container or container["envFrom"] == []
        for variable in container.get("env", []):
            assert "secretKeyRef" not in str(variable.get("valueFrom", variable.get("value_from")))
            assert not SECRET_NAMES.search(variable["name"])
    assert of_kind(workloads(case), "Secret") == {}
    assert not re.search(r"://[^/\s]*@", str(workloads(case))), "a URL with a password in it"


def test_only_who_talks_to_kubernetes_has_a_token(pods: dict[str, Object]):
    with_token = {name for name, pod in pods.items() if pod["spec"].get("automountServiceAccountToken", True)}
    assert with_token == {"slipway-webserver", "slipway-code", "slipway-daemon", "runs"}


def test_service_variables_are_not_injected(pods: dict[str, Object]):
    assert [name for name, pod in pods.items() if pod["spec"].get("enableServiceLinks") is not False] == []


def test_dagsters_own_jobs_fit_the_schemas_and_are_never_repeated(case: str):
    job = run_job(case)
    assert schemas.problems(job) == []
    assert job["spec"]["backoffLimit"] == 0, "a step's second pod exits 0, and the step stays in progress for ever"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_runs_go_where_they_are_told():
    spec = run_job("full")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == FULL["runs"]["nodeSelector"] and spec["tolerations"] == FULL["runs"]["tolerations"]


def test_pods_start_anew_when_settings_change():
    def marks(case: str) -> set[str]:
        return {each["metadata"]["annotations"]["slipway/settings"] for _, each in pod_templates(workloads(case))}

    assert len(marks("minimal")) == 1 and marks("minimal") != marks("full")
