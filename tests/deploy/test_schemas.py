"""The oldest and the newest supported Kubernetes, and the CRDs, accept the form of every object."""

import pytest

from slipway.deploy.cluster import render
from tests import schemas
from tests.deploy.rendering import VALUES, cluster_objects, identity, workloads


@pytest.mark.parametrize("case", VALUES)
def test_the_charts_objects_fit_the_schemas(case: str):
    objects = workloads(case)
    assert objects and [problem for document in objects for problem in schemas.problems(document)] == []


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_a_clusters_objects_fit_the_schemas(cluster: str):
    objects = cluster_objects(cluster)
    assert objects and [problem for document in objects for problem in schemas.problems(document)] == []


@pytest.mark.parametrize("cluster", render.CLUSTERS)
def test_no_object_is_written_twice(cluster: str):
    names = [identity(document) for document in [*cluster_objects(cluster), *workloads(cluster)]]
    assert len(names) == len(set(names))
