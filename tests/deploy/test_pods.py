"""Every pod, of the chart or of Dagster: unprivileged, probed, bounded, from a pinned image, with secrets as files."""

import dataclasses
import re
from collections.abc import Iterator

import pytest
import yaml

from slipway.assets.execution.pods import NEEDS, sandbox, tags
from slipway.deploy.cluster import render
from slipway.recipes.kubernetes import quantity
from slipway.resources.launchers.kubernetes import pods as trainers
from slipway.resources.steps import StepSettings
from tests import schemas
from tests.deploy.dagster_runs import JOB, platform_settings, run_job, training_pod
from tests.deploy.rendering import FULL, VALUES, WITHOUT, Object, of_kind, parsed, pod_templates, workloads
from tests.deploy.restricted import violations

PINNED = re.compile(r".+(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+)")
SECRET_NAMES = re.compile("PASSWORD|SECRET|TOKEN|ACCESS_KEY")


@pytest.fixture(params=VALUES)
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pods(case: str) -> dict[str, Object]:
    """The pod templates by their maker."""
    runs = run_job(case)["spec"]["template"]
    return {**dict(pod_templates(workloads(case))), "runs": runs, "trainings": training_pod(case)}


def containers(pods: dict[str, Object]) -> Iterator[tuple[str, Object]]:
    for name, template in pods.items():
        for container in template["spec"]["containers"]:
            yield name, container


def test_it_is_restricted(pods: dict[str, Object]):
    assert {name: faults for name, pod in pods.items() if (faults := violations(pod["spec"]))} == {}


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


def test_it_requests_its_resources(pods: dict[str, Object]):
    for name, container in containers(pods):
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert name == "trainings" or {"cpu", "memory", "ephemeral-storage"} <= {*requests}
        assert (
            quantity(requests["memory"]) <= quantity(limits["memory"])
            if "memory" in limits
            else "memory" not in requests
        )


def test_its_image_is_pinned(pods: dict[str, Object]):
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
            is_path = variable["name"].endswith("_FILE") and variable["value"].startswith("/secrets/")
            assert is_path or not SECRET_NAMES.search(variable["name"])
    assert of_kind(workloads(case), "Secret") == {}
    assert not re.search(r"://[^/\s]*@", str(workloads(case))), "a URL with a password in it"


def mounted(pod: Object) -> dict[str, str]:
    """The Secrets of a pod by the path of their mount."""
    secrets = {
        volume["name"]: volume["secret"]["secretName"] for volume in pod["spec"]["volumes"] if "secret" in volume
    }
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    return {path: secrets[name] for path, name in mounts.items() if name in secrets}


def test_keys_of_checkpoints_are_files_where_checkpoints_are_read_and_nowhere_else():
    runs = run_job("full")["spec"]["template"]
    all_pods = {**dict(pod_templates(workloads("full"))), "runs": runs, "trainings": training_pod("full")}
    with_keys = {
        name for name, pod in all_pods.items() if mounted(pod).get("/secrets/checkpoints") == "checkpoint-keys"
    }
    assert with_keys == {"runs", "trainings"}


def test_an_address_of_mlflow_with_a_password_is_a_file_in_a_secret():
    values = {**WITHOUT, "platform": {"tracking": {"secret": "mlflow-address"}}}
    objects = parsed(render.workloads(values))
    [platform] = [document for document in objects if document["metadata"]["name"] == "slipway-platform"]
    assert yaml.safe_load(platform["data"]["platform.yaml"])["tracking"] == {"uri_file": "/secrets/tracking/uri"}
    with_address = {name for name, pod in pod_templates(objects) if "/secrets/tracking" in mounted(pod)}
    assert with_address == {"slipway-code"}


def test_only_components_that_talk_to_kubernetes_have_a_token(pods: dict[str, Object]):
    with_token = {name for name, pod in pods.items() if pod["spec"].get("automountServiceAccountToken", True)}
    # Where Alloy is asked for, it reads the API server's logs of pods; an exporter reads the nodes.
    more = {"slipway-logs", "slipway-metrics"} & set(pods)
    assert with_token == {"slipway-webserver", "slipway-code", "slipway-daemon", "runs"} | more


def test_service_variables_are_not_injected(pods: dict[str, Object]):
    assert [name for name, pod in pods.items() if pod["spec"].get("enableServiceLinks") is not False] == []


def test_dagsters_own_jobs_fit_the_schemas_and_are_never_repeated(case: str):
    job = run_job(case)
    assert schemas.problems(job) == []
    assert job["spec"]["backoffLimit"] == 0, "a step's second pod exits 0, and the step stays in progress for ever"
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_runs_follow_the_node_selector_of_the_values():
    spec = run_job("full")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == FULL["runs"]["nodeSelector"]
    assert [toleration for toleration in spec["tolerations"] if "pool" in toleration["key"]] == FULL["runs"][
        "tolerations"
    ]


def test_a_node_that_does_not_answer_is_given_up_after_30_seconds(pods: dict[str, Object]):
    for name, pod in pods.items():
        tolerations = {
            toleration["key"]: toleration["tolerationSeconds"]
            for toleration in pod["spec"]["tolerations"]
            if "tolerationSeconds" in toleration
        }
        assert tolerations == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}, name


def test_memory_is_locked_by_a_start_as_root_that_becomes_the_user_where_nodes_cannot_be_changed():
    cluster = dataclasses.replace(platform_settings("full").compute.cluster, memlock="root")
    spec = trainers.template("llama-i1", JOB, cluster)["spec"]
    [container] = spec["containers"]
    assert violations(spec) == ["trainer: capabilities", "trainer: may run as root"]
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["SYS_RESOURCE", "SETUID", "SETGID"],
    }
    assert container["command"][:2] == ["prlimit", "--memlock=unlimited"]
    assert {"setpriv", "--reuid=2000", "--regid=2000", "--groups=2000", "--no-new-privs"} <= {*container["command"]}


def test_work_that_is_not_trusted_runs_in_a_sandbox_where_the_settings_name_one():
    cluster = dataclasses.replace(platform_settings("full").compute.cluster, runtime_class="gvisor")
    assert trainers.template("llama-i1", JOB, cluster)["spec"]["runtimeClassName"] == "gvisor"
    steps = StepSettings(sandbox="gvisor")
    assert {noun for noun in NEEDS if sandbox(tags(noun), steps)} == {"documents", "tokenizer", "snapshot", "suite"}


def test_pods_start_anew_when_settings_change():
    def marks(case: str) -> set[str]:
        return {
            template["metadata"]["annotations"]["slipway/settings"] for _, template in pod_templates(workloads(case))
        }

    assert len(marks("minimal")) == 1 and marks("minimal") != marks("full")
