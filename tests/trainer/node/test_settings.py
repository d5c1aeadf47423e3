"""The section `runtime`: what a rank sets before it touches the GPU, and what it leaves to its environment."""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.trainer.base import atomic, paths
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Runtime
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import process_groups
from slipway.trainer.node import settings
from tests.deploy.test_images import instructions


@pytest.fixture
def configured(document: dict[str, Any], tmp_path: Path):
    """A configuration with this section, of a training that compiles its blocks."""

    def config_with(**runtime: Any) -> Config:
        path = tmp_path / "config.json"
        path.write_bytes(atomic.readable_json({**document, "layout": {"compile": True}, "runtime": runtime}))
        return resolved.load(path)

    return config_with


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a rank sets for its process is set back."""
    environment = dict(os.environ)
    yield
    settings.set_torch(Runtime(), deterministic=False)
    os.environ.clear()
    os.environ.update(environment)


def test_the_allocator_is_told_by_the_variable_that_torch_reads(configured):
    variables = settings.variables(configured(collect_above=0.8), {})
    assert variables["PYTORCH_ALLOC_CONF"] == "expandable_segments:True,garbage_collection_threshold:0.8"
    assert "PYTORCH_ALLOC_CONF" not in settings.variables(configured(expandable_segments=False), {})


def test_the_compilers_caches_lie_on_the_nodes_nvme_in_a_folder_of_the_training(configured):
    config = configured()
    nvme = config.placement.nvme.format(node="node-3")
    folder = Path(nvme) / "compiled" / config.training
    variables = settings.variables(config, {"SLIPWAY_NODE": "node-3"})
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "inductor")
    assert variables["TRITON_CACHE_DIR"] == str(folder / "triton")
    assert not {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"} & set(
        settings.variables(configured(compile_cache=False), {})
    )


@pytest.mark.parametrize("nvme", ["/my home/nvme", "/o'clock", '/"quoted"', "/back\\slash"])
def test_a_path_that_a_compilers_command_line_would_split_is_none_for_its_caches(configured, nvme: str):
    config = configured()
    config = dataclasses.replace(config, placement=dataclasses.replace(config.placement, nvme=nvme))
    assert not set(settings.CACHES) & set(settings.variables(config, {}))


def test_the_compile_cache_of_a_recipe_comes_before_what_the_image_sets(configured):
    config = configured()
    set_by_image = [pair for what, rest in instructions("trainer") if what == "ENV" for pair in rest.split()]
    environment = dict(pair.split("=", 1) for pair in set_by_image)
    settings.set_environment(config, environment)
    effective = settings.in_force(config, environment)
    assert all(effective[name].endswith("(recipe)") for name in settings.CACHES), effective


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_the_environment_of_a_rank_comes_first_also_under_the_allocators_earlier_name(configured, name: str):
    config, environment = configured(tf32="all"), {name: "max_split_size_mb:64", "TRITON_CACHE_DIR": "/elsewhere"}
    settings.set_environment(config, environment)
    effective = settings.in_force(config, environment)
    assert effective.pop("TORCHINDUCTOR_CACHE_DIR").endswith("/inductor (recipe)")
    assert effective == {
        name: "max_split_size_mb:64 (environment)",
        "TRITON_CACHE_DIR": "/elsewhere (environment)",
        "tf32": "all (recipe)",
    }


@pytest.mark.parametrize(("tf32", "products", "convolutions"), [("none", 0, 0), ("convolutions", 0, 1), ("all", 1, 1)])
def test_a_rank_that_joins_multiplies_as_its_recipe_says(
    configured, untouched, tf32: str, products: int, convolutions: int
):
    with process_groups.join(configured(tf32=tf32, cudnn_benchmark=True)):
        assert torch.backends.cuda.matmul.allow_tf32 == bool(products)
        assert torch.backends.cudnn.allow_tf32 == bool(convolutions)
        assert torch.backends.cudnn.benchmark


def test_deterministic_algorithms_come_before_the_fastest(untouched):
    settings.set_torch(Runtime(cudnn_benchmark=True), deterministic=True)
    assert torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("tf32", True, "found True, expected one of 'none', 'convolutions', 'all'"),
        ("collect_above", 1.5, "expected a share from 0 up to, but not including, 1"),
        ("allow_tf32", True, "unknown; expected one of tf32, cudnn_benchmark"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_expected(configured, field: str, value: object, message: str):
    with pytest.raises(ValueError, match=message) as caught:
        configured(**{field: value})
    assert f"runtime.{field}" in str(caught.value)


@pytest.mark.nightly
def test_a_restart_compiles_nothing_again(training, monkeypatch: pytest.MonkeyPatch):
    """The second start of a training finds on its node's NVMe what the first one compiled."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # PyTorch sets it in a process that compiles
    training.configure(layout={"compile": True}, run={"steps": 2})
    training.interrupted(1).completed()
    first, second = training.events("compiled")
    assert first["compiled"] > 0 and first["found"] == 0
    assert second["compiled"] == 0 and second["found"] > 0
    assert (training.nvme / paths.compiled("tiny") / "inductor").is_dir()
