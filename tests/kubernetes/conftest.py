"""A cluster for the tests of a module: a simulated one, with a namespace for each test."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.simulated.cluster import Cluster
from tests.kubernetes.simulated.kinds import NAMESPACES, SERVICE_ACCOUNTS


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shared by the tests of a module: a test that breaks it repairs it."""
    folder: Path = tmp_path_factory.mktemp("kubernetes")
    with Cluster(folder) as cluster:
        yield cluster


@pytest.fixture
def namespace(simulated: Cluster) -> str:
    """A namespace of the test's own, with the service account of trainings."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    simulated.create(NAMESPACES, "", {"metadata": {"name": name}})
    simulated.create(SERVICE_ACCOUNTS, name, {"metadata": {"name": "slipway-trainer"}})
    return name
