"""Local updates: ranks that train alone and meet; what a meeting does, and when a training may stop or be kept."""

import re
import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import coherence, resolved
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Checkpoint, Communication, Validation
from slipway.trainer.node.world import World
from slipway.trainer.step.local_updates import LocalUpdates
from tests.trainer import gang
from tests.trainer.conftest import STEPS, Training, line_with, wait

DILOCO: dict[str, Any] = {"local_steps": 5, "outer_learning_rate": 0.7, "outer_momentum": 0.9}
ALONE = World(0, 1, 0, torch.device("cpu"))
Weights = dict[str, Tensor]


def network() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1))


def weights(model: nn.Module) -> Weights:
    return {name.removeprefix("module."): value.detach().clone() for name, value in model.state_dict().items()}


def train(world: World, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """One step over a batch that is another for each rank and step."""
    random = torch.Generator().manual_seed(100 * step + world.rank)
    optimizer.zero_grad()
    torch.autograd.backward(model(torch.randn(5, 6, generator=random)).square().mean())
    optimizer.step()


def local(world: World, inner: str = "sgd", **settings: Any) -> tuple[nn.Module, torch.optim.Optimizer, LocalUpdates]:
    model = network()
    kind = torch.optim.SGD if inner == "sgd" else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=0.1)
    return model, optimizer, LocalUpdates(model, optimizer, Communication(**settings), world, last_step=100)


def synchronized(
    start: Weights, momentum: Weights, ends: list[Weights], rate: float, share: float
) -> tuple[Weights, Weights]:
    """Weights and momentum after a meeting as the DiLoCo paper has it (algorithm 1), for what is trained."""
    after = {}
    for name in start:
        gradient = torch.stack([start[name] - end[name] for end in ends]).mean(0)
        momentum[name] = share * momentum[name] + gradient if name in momentum else gradient
        after[name] = start[name] - rate * (gradient + share * momentum[name])
    return after, momentum


def trained(model: nn.Module) -> Weights:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def meetings(world: World) -> list[tuple[bool, Weights, Weights]]:
    """Seven steps that meet at every third and are checked at each: whether they met, found, expected then."""
    model, optimizer, updates = local(world, **{**DILOCO, "local_steps": 3})
    start, synchronizations = trained(model), []
    momentum: Weights = {}
    for step in range(1, 8):
        train(world, model, optimizer, step)
        ends = world.all_gather(trained(model))
        is_synchronized = updates.synchronize_if_due(step)
        if is_synchronized:
            start, momentum = synchronized(start, momentum, ends, 0.7, 0.9)
        synchronizations.append((is_synchronized, trained(model), start if is_synchronized else ends[world.rank]))
    return synchronizations


def beside_ddp(world: World) -> tuple[Weights, Weights]:
    """Five steps of local SGD that synchronises after each, and of DDP."""
    model, optimizer, updates = local(world, local_steps=1)
    other = network()
    ddp = DistributedDataParallel(other)
    others = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(5):
        train(world, model, optimizer, step)
        updates.synchronize_if_due(step)
        train(world, ddp, others, step)
    return trained(model), trained(other)


def continued(world: World) -> tuple[Weights, Weights]:
    """The weights after ten steps of one process, and of one that took over at the meeting after the sixth."""
    model, optimizer, updates = local(world, "adamw", **{**DILOCO, "local_steps": 2})
    for step in range(1, 7):
        train(world, model, optimizer, step)
        updates.synchronize_if_due(step)
    successor, optimizer_too, updates_too = local(world, "adamw", **{**DILOCO, "local_steps": 2})
    successor.load_state_dict(weights(model))
    updates_too.load_state({name: value.clone() for name, value in updates.state().items()})
    for step in range(7, 11):
        train(world, model, optimizer, step)
        updates.synchronize_if_due(step)
        train(world, successor, optimizer_too, step)
        updates_too.synchronize_if_due(step)
    return weights(model), weights(successor)


def checks(world: World) -> dict[str, Any]:
    """All that two ranks are needed for, in one go."""
    model, optimizer, updates = local(world, local_steps=2)
    train(world, model, optimizer, 1)
    apart = weights(model)
    updates.synchronize_if_due(2)
    return {
        "apart": apart,
        "met": weights(model),
        "meetings": meetings(world),
        "ddp": beside_ddp(world),
        "continued": continued(world),
    }


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return gang.run(2, checks)


def test_ranks_differ_between_synchronisations_and_agree_bit_for_bit_after_one(ranks: list[dict[str, Any]]) -> None:
    (first, second), (agreeing, met_too) = ([rank[when] for rank in ranks] for when in ("apart", "met"))
    assert all(not torch.equal(first[name], second[name]) for name in first if value_moves(name))
    torch.testing.assert_close(agreeing, met_too, rtol=0, atol=0)


def test_local_sgd_averages_weights_and_running_statistics(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["apart"] for rank in ranks)
    for name in filter(value_moves, first):
        torch.testing.assert_close(ranks[0]["met"][name], (first[name] + second[name]) / 2)


def value_moves(name: str) -> bool:
    return not name.endswith("num_batches_tracked")


def test_ranks_synchronise_every_local_steps_and_diloco_moves_them_as_its_paper_says(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        assert [is_synchronized for is_synchronized, _, _ in rank["meetings"]] == [
            False,
            False,
            True,
            False,
            False,
            True,
            False,
        ]
        for _, result_weights, expected in rank["meetings"]:
            torch.testing.assert_close(result_weights, expected)


def test_local_sgd_that_synchronises_at_every_step_is_data_parallel_sgd(ranks: list[dict[str, Any]]) -> None:
    for result_weights, expected in (rank["ddp"] for rank in ranks):
        torch.testing.assert_close(result_weights, expected, rtol=1e-5, atol=1e-6)


def test_the_state_of_a_rank_continues_bit_for_bit(ranks: list[dict[str, Any]]) -> None:
    for result_weights, expected in (rank["continued"] for rank in ranks):
        torch.testing.assert_close(result_weights, expected, rtol=0, atol=0)


def test_a_rank_alone_takes_the_outer_steps_too() -> None:
    model, optimizer, updates = local(ALONE, **{**DILOCO, "local_steps": 2, "outer_momentum": 0.0})
    start = trained(model)
    train(ALONE, model, optimizer, 1)
    end = trained(model)
    assert updates.synchronize_if_due(2)
    torch.testing.assert_close(trained(model), {name: start[name].lerp(end[name], 0.7) for name in start})


def test_a_synchronisation_of_weights_that_have_not_moved_changes_nothing() -> None:
    model, _, updates = local(ALONE, **DILOCO)
    before = weights(model)
    assert updates.synchronize_if_due(5)
    torch.testing.assert_close(weights(model), before, rtol=0, atol=0)


def test_the_ranks_synchronise_after_the_last_step_whatever_its_number() -> None:
    _, _, updates = local(ALONE, local_steps=7)
    assert not updates.synchronize_if_due(99)
    assert updates.synchronize_if_due(100)


def test_checkpoints_and_validations_between_synchronisations_are_refused_with_the_number() -> None:
    for section, sections in (
        ("checkpoint", (Checkpoint(every=12), Validation(every=16))),
        ("validation", (Checkpoint(every=16), Validation(every=12))),
    ):
        message = re.escape("expected a multiple of communication.local_steps (8)")
        with pytest.raises(Invalid, match=message) as raised:
            coherence.check(Communication(local_steps=8), Layout(), *sections)
        assert raised.value.field == f"{section}.every"


def test_a_configuration_file_that_is_not_coherent_is_refused_by_its_name_and_field(training: Training) -> None:
    training.configure(communication={"local_steps": 4})
    with pytest.raises(ValueError, match=r"config\.json: field checkpoint\.every: expected a multiple of .*\(4\)"):
        resolved.load(training.config)


@pytest.mark.parametrize("setting", [{"outer_learning_rate": 0.7}, {"outer_momentum": 0.9}])
def test_outer_settings_without_local_steps_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(Invalid, match="no outer update with local_steps 1"):
        Communication(**setting)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def diloco(tmp_path_factory: pytest.TempPathFactory, mark: str) -> Training:
    """A training by two ranks that meet at every fifth step. Read only."""
    return Training(tmp_path_factory.mktemp("diloco"), mark, communication=DILOCO).completed(ranks=2)


@pytest.mark.slow
def test_diloco_learns(diloco: Training) -> None:
    losses = [loss for _, loss in diloco.losses()]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0] - 0.5
    measured = [event["loss"] for event in diloco.events("validated")]
    assert measured[-1] < measured[0]


@pytest.mark.slow
def test_a_training_of_two_ranks_that_is_killed_ends_bit_for_bit_as_one_that_is_not(
    training: Training, diloco: Training
) -> None:
    training.configure(communication=DILOCO)
    training.interrupted(12, ranks=2).completed(ranks=2)
    assert training.events("restored")
    assert training.losses() == diloco.losses()
    assert training.tensors_by_name() == diloco.tensors_by_name()


@pytest.mark.nightly
def test_the_number_of_ranks_may_change(training: Training) -> None:
    training.configure(communication=DILOCO)
    training.interrupted(12, ranks=2).completed(ranks=3)
    assert [event["world"] for event in training.events("started")] == [2, 3]
    losses = [loss for _, loss in training.losses()]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_a_training_that_is_asked_to_stop_goes_on_to_the_next_synchronisation(training: Training) -> None:
    training.configure(
        communication={**DILOCO, "local_steps": 100},
        checkpoint={"every": 500},
        validation={"every": 0},
        run={"steps": 100_000},
    )
    process = training.start()
    line_with(process, "step 1/")
    process.send_signal(signal.SIGTERM)
    ended = wait(process)
    assert ended.code == 0, ended.err
    (stopped,) = training.events("ended")
    assert stopped["outcome"] == "stopped" and stopped["step"] > 0 and stopped["step"] % 100 == 0
    assert [commit.step for commit in training.commits()] == [stopped["step"]]
