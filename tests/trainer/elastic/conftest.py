"""Jobs of supervised nodes, which end with their test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.trainer.conftest import Training
from tests.trainer.elastic.nodes import SupervisedNodes

StartNodes = Callable[..., SupervisedNodes]


@pytest.fixture
def start_nodes(training: Training) -> Iterator[StartNodes]:
    """Starts the nodes of the training's first incarnation; arguments as `SupervisedNodes`."""
    started: list[SupervisedNodes] = []

    def start(*arguments: Any, **options: Any) -> SupervisedNodes:
        started.append(SupervisedNodes(training, *arguments, **options))
        return started[-1]

    yield start
    for nodes in started:
        nodes.close()
