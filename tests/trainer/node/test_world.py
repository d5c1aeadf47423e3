"""The world: how a rank joins the others, and what it sets for its process."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.trainer.base import atomic
from slipway.trainer.config import resolved
from slipway.trainer.elastic import process_groups


@pytest.fixture
def afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@pytest.mark.parametrize("is_deterministic", [False, True])
def test_deterministic_algorithms_are_used_where_the_recipe_asks_for_them(
    document: dict[str, Any], tmp_path: Path, afterwards: None, is_deterministic: bool
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(atomic.readable_json({**document, "hardware": {"deterministic": is_deterministic}}))
    with process_groups.join(resolved.load(path)):
        assert torch.are_deterministic_algorithms_enabled() is is_deterministic
        assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) is is_deterministic
