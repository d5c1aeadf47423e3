"""The optimisers: PyTorch's numbers, weight decay, frozen parameters, saved state, and matrices over several ranks."""

import copy
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from slipway.trainer.config.sections import OptimizerConfig
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.node.world import World
from slipway.trainer.step import optimizers
from slipway.trainer.step.optimizers.momentum import sgd
from slipway.trainer.step.optimizers.sharing import orthogonal, owners
from tests.trainer import gang
from tests.trainer.calls import Calls

KINDS = get_args(OptimizerConfig.__annotations__["kind"])
Weights = dict[str, Tensor]
PRODUCT = torch.ops.aten.addmm.default
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def decoder() -> Decoder:
    """Its hidden width divides by no number of ranks."""
    torch.manual_seed(1)
    return Decoder(DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=53), Data(vocabulary=64, length=16))


def settings(kind: str, **changed: Any) -> OptimizerConfig:
    values = {"kind": kind, "learning_rate": 0.01, "weight_decay": 0.3, "beta1": 0.8, "momentum": 0.7, **changed}
    return OptimizerConfig(**values)


def take_steps(model: nn.Module, optimizer: Optimizer | list[Optimizer], count: int, seed: int = 2) -> Weights:
    """The weights after steps with drawn gradients: the same for every model of these parameters."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=random)
            parameter.grad = drawn if parameter.requires_grad else None
        for one_optimizer in optimizer if isinstance(optimizer, list) else [optimizer]:
            one_optimizer.step()
            one_optimizer.zero_grad()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def decaying_apart(parameters: Any) -> list[dict[str, Any]]:
    listed = list(parameters)
    vectors = {"params": [p for p in listed if p.dim() < 2], "weight_decay": 0.0}
    return [{"params": [p for p in listed if p.dim() >= 2]}, vectors]


def torchs_own(model: Decoder, kind: str) -> list[Optimizer]:
    """PyTorch's own optimisers, not fused, with the values of `settings`."""
    groups = decaying_apart(model.parameters())
    match kind:
        case "adamw":
            return [torch.optim.AdamW(groups, betas=(0.8, 0.95), lr=0.01, weight_decay=0.3)]
        case "adam":
            return [torch.optim.Adam(groups, betas=(0.8, 0.95), lr=0.01, weight_decay=0.3)]
        case "sgd":
            return [torch.optim.SGD(groups, momentum=0.7, lr=0.01, weight_decay=0.3)]
    matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
    rest = decaying_apart(p for p in model.parameters() if not any(p is matrix for matrix in matrices))
    by_muon = torch.optim.Muon(matrices, momentum=0.7, adjust_lr_fn="match_rms_adamw", lr=0.01, weight_decay=0.3)
    return [by_muon, torch.optim.AdamW(rest, betas=(0.8, 0.95), lr=0.01, weight_decay=0.3)]


def test_a_recipe_may_name_every_optimiser_of_the_table_and_no_other() -> None:
    assert list(optimizers.BUILDERS) == list(KINDS)


@EVERY_KIND
def test_the_updates_are_those_of_torchs_own_optimiser(kind: str) -> None:
    model, reference = decoder(), decoder()
    updated = take_steps(model, optimizers.build(model, settings(kind)), 5)
    expected = take_steps(reference, torchs_own(reference, kind), 5)
    torch.testing.assert_close(updated, expected, rtol=1e-5, atol=1e-6)


@EVERY_KIND
def test_matrices_decay_and_norms_do_not(kind: str) -> None:
    groups = optimizers.build(decoder(), settings(kind)).param_groups
    assert {p.dim() for group in groups if group["weight_decay"] == 0.3 for p in group["params"]} == {2}
    assert sum(len(group["params"]) for group in groups if group["weight_decay"] == 0) == 2 * 2 + 1
    assert sum(len(group["params"]) for group in groups) == len(list(decoder().parameters()))


@EVERY_KIND
def test_frozen_parameters_are_left_out(kind: str) -> None:
    model = decoder()
    for frozen in (model.embedding, model.blocks[0]):
        frozen.requires_grad_(False)
    optimizer, before = optimizers.build(model, settings(kind)), decoder().state_dict()
    after = take_steps(model, optimizer, 2)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert len(optimizer.state) == len(changed)


@EVERY_KIND
def test_a_rate_set_in_the_groups_is_the_rate_of_all_parts(kind: str) -> None:
    model = decoder()
    optimizer, before = optimizers.build(model, settings(kind)), decoder().state_dict()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    torch.testing.assert_close(take_steps(model, optimizer, 1), dict(before), rtol=0, atol=0)


@EVERY_KIND
def test_no_gradient_is_left_after_they_are_cleared(kind: str) -> None:
    model = decoder()
    take_steps(model, optimizers.build(model, settings(kind)), 1)
    assert all(parameter.grad is None for parameter in model.parameters())


@EVERY_KIND
def test_state_restored_by_parameter_continues_bit_for_bit(kind: str) -> None:
    model = decoder()
    optimizer = optimizers.build(model, settings(kind))
    take_steps(model, optimizer, 3)
    other = copy.deepcopy(model)
    successor = optimizers.build(other, settings(kind))
    parameters = dict(model.named_parameters())
    for name, parameter in other.named_parameters():
        successor.state[parameter] = copy.deepcopy(optimizer.state[parameters[name]])
    continued = take_steps(other, successor, 2, seed=3)
    assert_equal(continued, take_steps(model, optimizer, 2, seed=3))


@EVERY_KIND
def test_state_restored_by_pytorchs_distributed_state_dict_continues_bit_for_bit(kind: str) -> None:
    model = decoder()
    optimizer = optimizers.build(model, settings(kind))
    take_steps(model, optimizer, 3)
    other = copy.deepcopy(model)
    successor = optimizers.build(other, settings(kind))
    set_optimizer_state_dict(other, successor, copy.deepcopy(get_optimizer_state_dict(model, optimizer)))
    continued = take_steps(other, successor, 2, seed=3)
    assert_equal(continued, take_steps(model, optimizer, 2, seed=3))


def test_sgd_trains_kernels_of_several_dimensions() -> None:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    reference = copy.deepcopy(layers)
    expected = torch.optim.SGD(decaying_apart(reference.parameters()), lr=0.01, weight_decay=0.3, momentum=0.7)
    torch.testing.assert_close(take_steps(layers, sgd(layers, settings("sgd")), 3), take_steps(reference, expected, 3))


def test_muon_has_the_matrices_of_the_blocks_and_adamw_embeddings_head_and_norms() -> None:
    model = decoder()
    optimizer = optimizers.build(model, settings("muon"))
    take_steps(model, optimizer, 1)
    state_keys = {name: set(optimizer.state[parameter]) for name, parameter in model.named_parameters()}
    by_muon = {name for name, keys in state_keys.items() if keys == {"momentum_buffer"}}
    assert by_muon == {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.dim() == 2}
    assert all(state_keys[name] == {"step", "exp_avg", "exp_avg_sq"} for name in state_keys.keys() - by_muon)


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (24, 24)])
def test_an_orthogonal_update_has_all_singular_values_near_one(shape: tuple[int, int]) -> None:
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(5))).float())
    assert values.min() > 0.4 and values.max() < 1.3


def sharded_steps(world: World, kind: str) -> tuple[Weights, list[bool]]:
    """Weights after steps on a model divided over the ranks; and whether each state is divided as its weight is."""
    model = decoder()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = optimizers.build(model, settings(kind))
    random = torch.Generator().manual_seed(2)
    weights = {name: weight for name, weight in model.named_parameters() if isinstance(weight, DTensor)}
    for _ in range(3):
        for weight in weights.values():
            drawn = torch.randn(weight.shape, generator=random)
            weight.grad = distribute_tensor(drawn, weight.device_mesh, weight.placements)
        optimizer.step()
    divided = [
        value.placements == weight.placements
        for weight in weights.values()
        for value in optimizer.state[weight].values()
        if isinstance(value, DTensor)
    ]
    return {name: weight.full_tensor().detach() for name, weight in weights.items()}, divided


def shared_steps(world: World) -> tuple[Weights, int, Weights, list[bool], int]:
    """Weights after steps on whole models, and on a divided one; and the products that this rank computed for each."""
    model = decoder()
    with Calls() as of_copies:
        weights = take_steps(model, optimizers.build(model, settings("muon"), dist.group.WORLD), 3)
    with Calls() as of_rows:
        sharded_weights, divided = sharded_steps(world, "muon")
    return weights, of_copies.of[PRODUCT], sharded_weights, divided, of_rows.of[PRODUCT]


@pytest.mark.slow
def test_three_ranks_divide_the_products_and_take_the_steps_of_one_rank_bit_for_bit() -> None:
    one_rank_model = decoder()
    with Calls() as alone:
        expected = take_steps(one_rank_model, optimizers.build(one_rank_model, settings("muon")), 3)
    ranks = gang.run(3, shared_steps)
    for weights, _, sharded_weights, divided, _ in ranks:
        assert_equal(weights, expected)
        assert_equal(sharded_weights, expected)
        assert divided and all(divided)
    assert sum(rank[1] for rank in ranks) == sum(rank[4] for rank in ranks) == alone.of[PRODUCT]
    assert all(rank[1] < alone.of[PRODUCT] / 2 and rank[4] < alone.of[PRODUCT] / 2 for rank in ranks)


def test_every_rank_gets_about_as_much_to_compute() -> None:
    shapes = 6 * [(64, 64), (192, 64), (64, 192), (16, 64)] + [(512, 64)]
    owner = owners(shapes, 4)
    cost = [
        sum(min(s) ** 2 * (2 * max(s) + min(s)) for s, r in zip(shapes, owner, strict=True) if r == k) for k in range(4)
    ]
    assert max(cost) < 1.1 * min(cost)
    assert owners(shapes[:2], 4) == [1, 0], "a rank without a matrix computes none"


def assert_equal(weights: Weights, expected: Weights) -> None:
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)
