"""How gradients travel: what compression does to them, what it keeps, and where it is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from benchmarks.peers import steps as stepping
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import coherence
from slipway.trainer.config.layout import Mesh
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Checkpoint, Communication, Validation
from slipway.trainer.config.shapes import Data
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.step import communication, parallel
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.parallel import replicas
from slipway.trainer.step.powersgd import PowerSGD
from tests.trainer import gang
from tests.trainer.conftest import Training

Gradients = dict[str, Tensor]


def network() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(24, 40), nn.Tanh(), nn.Linear(40, 32), nn.Tanh(), nn.Linear(32, 3))


def gradients(world: World, model: nn.Module, step: int) -> Gradients:
    """Those of a drawn batch, another one for each rank and step."""
    random = torch.Generator().manual_seed(100 * step + world.rank)
    model.zero_grad()
    torch.autograd.backward(model(torch.randn(9, 24, generator=random)).square().sum())
    return {name.removeprefix("module."): p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def mean(world: World, values: Gradients) -> Gradients:
    return {name: torch.stack(world.all_gather(value)).mean(0) for name, value in values.items()}


def wrapped(compression: str, rank: int = 2) -> tuple[DistributedDataParallel, PowerSGD | None]:
    """Over several small buckets, which DDP groups anew after the first step."""
    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.002)
    config = Communication(compression=compression, powersgd_rank=rank)  # type: ignore[arg-type]
    return ddp, communication.attach([ddp], config, 5, Timeline(torch.device("cpu")))


def averaged(world: World, compression: str) -> tuple[Gradients, Gradients]:
    """What three steps' last one gives, and the exact mean."""
    ddp, _ = wrapped(compression)
    averaged_gradients = [gradients(world, ddp, step) for step in range(3)][-1]
    return averaged_gradients, mean(world, gradients(world, network(), 2))


def powersgd_steps(world: World) -> list[tuple[Gradients, Gradients, Gradients]]:
    """For each of four steps: the result, the exact mean, and the mean error afterwards."""
    ddp, compression = wrapped("powersgd")
    assert compression is not None
    steps = []
    for step in range(4):
        averaged_gradients = gradients(world, ddp, step)
        errors = {
            name.removeprefix("error/"): value
            for name, value in compression.state().items()
            if name.startswith("error/")
        }
        steps.append((averaged_gradients, mean(world, gradients(world, network(), step)), mean(world, errors)))
    return steps


def powersgd_continued(world: World) -> tuple[Gradients, Gradients]:
    """The fifth step of one process, and of one that took over after the third."""
    ddp, compression = wrapped("powersgd")
    assert compression is not None
    for step in range(3):
        gradients(world, ddp, step)
    successor, taken_over = wrapped("powersgd")
    assert taken_over is not None
    taken_over.load_state({name: value.clone() for name, value in compression.state().items()})
    results = [[gradients(world, module, step) for step in (3, 4)][-1] for module in (ddp, successor)]
    return results[0], results[1]


def powersgd_beside_torchs(world: World) -> list[tuple[Tensor, Tensor]]:
    """The results of ours and of PyTorch's hook for one matrix, from the same first factor."""
    torch.manual_seed(6)
    layers = [DistributedDataParallel(nn.Linear(24, 40, bias=False)) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    reference = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    layers[1].register_comm_hook(reference, powerSGD_hook)
    for step in (0, 1):
        gradients(world, layers[1], step)
    compressor = PowerSGD(layers[0].module, rank=2, seed=0)
    torch.manual_seed(np.random.RandomState(0).randint(1_000_000_000))
    compressor.load_state({"error/weight": torch.zeros(40, 24), "factor/weight": torch.randn(1, 24, 2)[0]})
    layers[0].register_comm_hook(None, compressor.hook)
    return [tuple(gradients(world, layer, step)["weight"] for layer in layers) for step in range(2, 6)]  # type: ignore[misc]


def sharded(world: World, kind: Any) -> Gradients:
    """The whole gradients of an engine whose weights are divided by FSDP."""
    config = replace(
        stepping.training(
            Path("/nowhere"),
            "0" * 64,
            DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64),
            Batch(sequences=4, length=16, micro=2),
            Layout(shard="full"),
            "fp32",
        ),
        communication=Communication(compression=kind),
    )
    engine = Engine(config, replace(world, mesh=Mesh(shards=world.size)), Data(vocabulary=64, length=16))
    rows = np.random.default_rng(world.rank).integers(0, 64, (2, 17)).astype(np.uint16)
    engine.accumulate(rows, np.arange(2, dtype=np.uint64) + 2 * world.rank)
    gradients_by_name = {name: weight.grad for name, weight in engine.model.named_parameters()}
    return {
        name: gradient.full_tensor() for name, gradient in gradients_by_name.items() if isinstance(gradient, DTensor)
    }


def buckets(world: World) -> list[list[list[torch.Size]]]:
    """The shapes of the parameters in each bucket, for each of three steps of a fresh process."""
    model = nn.Sequential(*(nn.Linear(24 if index == 0 else 600, 600) for index in range(4)))
    ddp = replicas.replicate(model, init_device_mesh("cpu", (1, world.size, 1, 1), mesh_dim_names=parallel.AXES))
    assert isinstance(ddp, DistributedDataParallel)
    shapes: list[list[list[torch.Size]]] = []

    def note(group: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        shapes[-1].append([parameter.shape for parameter in bucket.parameters()])
        return allreduce_hook(group, bucket)

    ddp.register_comm_hook(None, note)
    for step in range(3):
        shapes.append([])
        gradients(world, ddp, step)
    return shapes


def checks(world: World) -> dict[str, Any]:
    """All that two ranks are needed for, in one go."""
    return {
        **{kind: averaged(world, kind) for kind in ("none", "bf16", "fp16")},
        **{f"sharded {kind}": sharded(world, kind) for kind in ("none", "bf16", "fp16")},
        "buckets": buckets(world),
        "powersgd": powersgd_steps(world),
        "continued": powersgd_continued(world),
        "torch": powersgd_beside_torchs(world),
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return gang.run(2, checks)


@pytest.mark.parametrize(("kind", "tolerance"), [("none", 1e-6), ("bf16", 2**-7), ("fp16", 2**-10)])
def test_gradients_are_averaged_as_exactly_as_their_numbers_are_long(
    ranks: list[dict[str, Any]], kind: str, tolerance: float
) -> None:
    for averages, exact in (rank[kind] for rank in ranks):
        for name, value in exact.items():
            assert (averages[name] - value).norm() <= tolerance * value.norm()


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_gradients_that_are_sent_in_16_bits_have_16_bits(
    ranks: list[dict[str, Any]], kind: str, dtype: torch.dtype
) -> None:
    averages, exact = ranks[0][kind]
    assert all(torch.equal(value, value.to(dtype).float()) for value in averages.values())
    assert not all(torch.equal(value, value.to(dtype).float()) for value in exact.values())


def test_powersgd_gives_every_rank_the_same_matrices_of_low_rank(ranks: list[dict[str, Any]]) -> None:
    for (first, _, _), (second, _, _) in zip(*(rank["powersgd"] for rank in ranks), strict=True):
        for name, value in first.items():
            assert torch.equal(value, second[name])
            if name in ("0.weight", "2.weight"):
                assert int(torch.linalg.matrix_rank(value, rtol=1e-4)) == 2


def test_powersgd_adds_what_it_leaves_out_to_the_next_gradient(ranks: list[dict[str, Any]]) -> None:
    before: Gradients = {}
    for averages, exact, errors in ranks[0]["powersgd"]:
        assert set(errors) == {"0.weight", "2.weight"}
        for name, error in errors.items():
            torch.testing.assert_close(averages[name] + error, exact[name] + before.get(name, 0), rtol=1e-4, atol=1e-3)
        before = errors


def test_powersgd_leaves_vectors_and_small_matrices_exact(ranks: list[dict[str, Any]]) -> None:
    for averages, exact, _ in ranks[0]["powersgd"]:
        for name in ("0.bias", "2.bias", "4.weight", "4.bias"):
            torch.testing.assert_close(averages[name], exact[name])


def test_powersgd_gives_the_numbers_of_pytorchs_hook(ranks: list[dict[str, Any]]) -> None:
    for result, reference in ranks[0]["torch"]:
        torch.testing.assert_close(result, reference, rtol=1e-3, atol=1e-3)


def test_powersgd_continues_bit_for_bit_although_ddp_groups_its_buckets_anew(ranks: list[dict[str, Any]]) -> None:
    for first, second in (rank["continued"] for rank in ranks):
        torch.testing.assert_close(second, first, rtol=0, atol=0)


@pytest.mark.nightly
@pytest.mark.parametrize("compression", ["none", "powersgd"])
def test_a_training_of_three_ranks_that_is_killed_ends_bit_for_bit_as_one_that_is_not(
    training: Training, another: Callable[..., Training], compression: str
) -> None:
    """Of two numbers a sum has but one value; of three, it has one for each order."""
    settings = {"communication": {"compression": compression, "powersgd_rank": 2}}
    training.configure(**settings)
    undisturbed = another(**settings).completed(ranks=3)
    training.interrupted(12, ranks=3).completed(ranks=3)
    assert training.events("restored")
    assert training.losses() == undisturbed.losses()
    assert training.tensors_by_name() == undisturbed.tensors_by_name()


@pytest.mark.parametrize("layout", [Layout(shard="full"), Layout(shard="hybrid"), Layout(tensor=2), Layout(pipeline=2)])
@pytest.mark.parametrize("setting", [{"compression": "powersgd"}, {"local_steps": 4}])
def test_divided_models_with_compression_or_local_updates_are_refused_with_both_names(
    layout: Layout, setting: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match=f"expected .* with layout.shard {layout.shard}, layout.tensor") as raised:
        coherence.check(Communication(**setting), layout, Checkpoint(every=4), Validation())
    assert raised.value.field == f"communication.{next(iter(setting))}"


@pytest.mark.parametrize("kind", ["none", "bf16", "fp16"])
@pytest.mark.parametrize("layout", [Layout(shard="full"), Layout(shard="hybrid"), Layout(tensor=2), Layout(pipeline=2)])
def test_the_type_in_which_gradients_are_summed_is_a_choice_in_every_layout(layout: Layout, kind: Any) -> None:
    coherence.check(Communication(compression=kind), layout, Checkpoint(every=7), Validation(every=3))


@pytest.mark.parametrize(("kind", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_fsdp_sums_gradients_in_the_chosen_type(ranks: list[dict[str, Any]], kind: str, dtype: torch.dtype) -> None:
    exact = ranks[0]["sharded none"]
    for rank in ranks:
        averages = rank[f"sharded {kind}"]
        assert all(torch.equal(value, value.to(dtype).float()) for value in averages.values())
        assert all((averages[name] - exact[name]).norm() <= 2**-6 * exact[name].norm() for name in exact)
    assert not all(torch.equal(value, value.to(dtype).float()) for value in exact.values())


def test_ddp_groups_its_buckets_in_the_first_step_as_in_all_later_ones(ranks: list[dict[str, Any]]) -> None:
    first, *later = ranks[0]["buckets"]
    assert len(first) > 1 and all(bucket_shapes == first for bucket_shapes in later)
