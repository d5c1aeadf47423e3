"""The platform's settings, and one message with file and line for each problem in them."""

from pathlib import Path

import pytest
import yaml

from slipway.recipes.problems import InvalidRecipes
from slipway.resources import platform
from tests.kubernetes.settings import settings

SETTINGS_TEXT = """\
slipway: platform/1
revision: 0123abc
tiers:
  durable: /mnt/durable
  nvme: /mnt/nvme
  origins: [s3://bucket/replica]
tracking:
  uri: http://mlflow:5000
compute:
  launcher: job
  node_tasks: {resources: {cpu: "2", memory: 1Gi}}
  cluster:
    image: registry.example/trainer@sha256:0123
    node_selector: {slipway/fleet: h200}
    volumes: {/mnt/durable: durable, /mnt/nvme: nvme}
    grace_seconds: 120
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "platform.yaml"


def problems(file: Path, text: str) -> list[str]:
    """The problems of a file with this text, without the file's folder."""
    file.write_text(text)
    with pytest.raises(InvalidRecipes) as refused:
        platform.load(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in refused.value.problems]


def test_settings_are_read_as_they_are_written(file: Path):
    file.write_text(SETTINGS_TEXT)
    read = platform.load(file)
    assert read.revision == "0123abc" and read.tracking.uri == "http://mlflow:5000"
    assert (read.compute.launcher, read.compute.node_tasks.resources["cpu"]) == ("job", "2")
    assert read.compute.cluster.volumes == {"/mnt/durable": "durable", "/mnt/nvme": "nvme"}
    assert read.compute.cluster.grace_seconds == 120 and read.compute.cluster.namespace == "slipway"


@pytest.mark.parametrize(
    ("original", "instead", "message"),
    [
        ("platform/1", "platform/2", 'platform.yaml:1: slipway: found "platform/2", expected platform/1'),
        ("slipway: platform/1\n", "", "platform.yaml:1: slipway: found nothing, expected platform/1"),
        ("durable: /mnt/durable", "durable: 3", "platform.yaml:4: tiers.durable: found 3, expected text"),
        (
            "[s3://bucket/replica]",
            "s3://bucket/replica",
            'platform.yaml:6: tiers.origins: found "s3://bucket/replica", expected a list',
        ),
        (
            "launcher: job",
            "launcher: argo",
            'platform.yaml:10: compute.launcher: found "argo", expected one of jobset, job, trainjob, pytorchjob',
        ),
        (
            'cpu: "2"',
            'cpu: "2 cores"',
            'platform.yaml:11: compute.node_tasks.resources.cpu: found "2 cores", '
            "expected a Kubernetes quantity, such as 8, 500m or 512Gi",
        ),
        (
            "grace_seconds: 120",
            "grace_seconds: 2m",
            'platform.yaml:16: compute.cluster.grace_seconds: found "2m", expected a whole number',
        ),
        (
            "{/mnt/durable: durable, /mnt/nvme: nvme}",
            "[durable]",
            'platform.yaml:15: compute.cluster.volumes: found ["durable"], expected a section',
        ),
        (
            "    image: registry.example/trainer@sha256:0123\n",
            "",
            "platform.yaml:12: compute.cluster.image: found nothing, expected text",
        ),
        (
            "http://mlflow:5000",
            "http://user:word@mlflow:5000",
            "platform.yaml:8: tracking.uri: found a user, password or token in it, expected none, since it would be "
            "shown and stored: write it into a file that only Slipway reads, and name the file",
        ),
        (
            "  uri: http://mlflow:5000",
            "  {}",
            "platform.yaml:7: tracking.uri: found null, expected one of uri and uri_file",
        ),
    ],
)
def test_each_problem_names_the_line_what_was_found_and_what_is_expected(
    file: Path, original: str, instead: str, message: str
):
    assert original in SETTINGS_TEXT
    assert problems(file, SETTINGS_TEXT.replace(original, instead, 1)) == [message]


def test_all_problems_are_reported_at_once(file: Path):
    several = SETTINGS_TEXT.replace("durable: /mnt/durable", "durable: 3", 1).replace("revision:", "revisions:", 1)
    assert [problem.split(":")[1] for problem in problems(file, several)] == ["2", "4"]


def test_a_missing_file_is_named(file: Path):
    with pytest.raises(InvalidRecipes) as refused:
        platform.load(file)
    assert str(refused.value) == (
        f"{file}: found No such file or directory, "
        "expected the platform's settings (a file that begins slipway: platform/1)"
    )


def test_an_environment_that_holds_a_secret_is_refused_without_showing_it(file: Path):
    value = settings()
    value["compute"]["cluster"]["environment"] = {"NCCL_DEBUG": "WARN", "HF_TOKEN": "PLANTED"}
    [problem] = problems(file, yaml.safe_dump(value))
    assert (
        "environment.HF_TOKEN: found a secret, expected none, since the settings are shown" in problem
        and "PLANTED" not in problem
    )


def test_without_the_variable_the_instance_is_embedded():
    assert platform.named({}) is None
    assert platform.named({"SLIPWAY_PLATFORM": "/etc/slipway/platform.yaml"}) == Path("/etc/slipway/platform.yaml")
