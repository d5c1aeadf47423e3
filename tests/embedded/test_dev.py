"""`dev`: the instance stays up until Ctrl-C, and has its home for itself."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dagster_graphql import DagsterGraphQLClient, ReloadRepositoryLocationStatus

from tests.drills import graphql
from tests.embedded.slipway import TRAINING, Slipway, free_port, interrupt, printed_until
from tests.proxies import EXCLUDED, NAMES, recorder

pytestmark = pytest.mark.slow


@pytest.fixture
def running(slipway: Slipway) -> Iterator[subprocess.Popen[str]]:
    """An instance that answers."""
    slipway.environ["SLIPWAY_PORT"] = str(free_port())
    process = slipway.start("dev")
    printed_until(process, f"Slipway is at http://127.0.0.1:{slipway.environ['SLIPWAY_PORT']}; Ctrl-C closes it")
    yield process
    slipway.end_all()


def test_it_knows_the_definitions_when_it_says_that_it_is_there_and_new_ones_after_a_reload(
    slipway: Slipway, running: subprocess.Popen[str]
):
    port = int(slipway.environ["SLIPWAY_PORT"])
    client = DagsterGraphQLClient("127.0.0.1", port_number=port)
    assert client.submit_job_execution("small_decoder_sweep")
    written = (slipway.recipes / TRAINING).read_text()
    (slipway.recipes / "trainings" / "second.yaml").write_text(written)
    (slipway.recipes / "trainings" / "broken.yaml").write_text(written.replace("layers: 2", "layers: many"))
    reloaded = client.reload_repository_location("slipway")
    assert reloaded.status is ReloadRepositoryLocationStatus.SUCCESS, reloaded
    for recipe in ("second", "small_decoder"):  # the broken one takes out its own lane alone
        assert graphql.launch_job(f"http://127.0.0.1:{port}", "slipway", f"{recipe}_start", None, {})
    assert interrupt(running)[0] == 0


def test_its_home_is_its_own_until_it_is_closed(slipway: Slipway, running: subprocess.Popen[str]):
    del slipway.environ["SLIPWAY_PORT"]
    second = slipway.run("demo")
    assert (second.returncode, second.stdout) == (1, "")
    assert "found another process using it" in second.stderr
    code, output, errors = interrupt(running)
    assert (code, output, errors) == (0, "", "")
    assert slipway.pids() == []


def test_it_comes_up_where_the_environment_names_a_proxy_which_hears_nothing(slipway: Slipway, tmp_path: Path):
    (tmp_path / "token").write_text("an-invented-token-0123456789abcdef\n")
    (tmp_path / "token").chmod(0o600)
    slipway.environ |= {"SLIPWAY_PORT": str(free_port()), "SLIPWAY_TOKEN_FILE": str(tmp_path / "token")}
    with recorder() as proxy:
        slipway.environ |= dict.fromkeys(NAMES, proxy.url) | dict.fromkeys(EXCLUDED, "")
        process = slipway.start("dev")
        printed_until(process, f"Slipway is at http://127.0.0.1:{slipway.environ['SLIPWAY_PORT']}; Ctrl-C closes it")
        assert interrupt(process)[0] == 0
        assert proxy.requests == []
