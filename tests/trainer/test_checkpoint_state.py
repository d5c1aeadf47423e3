"""What a checkpoint holds: enough to go on as if nothing had happened."""

import json
import random
from dataclasses import replace

import numpy as np
import safetensors.torch
import torch

from trainer.checkpoint import format, state
from trainer.checkpoint.state import Progress
from trainer.models.decoder import Decoder
from trainer.optim import adamw
from trainer.sections import Optimiser
from trainer.shapes import DecoderShape

PROGRESS = Progress(
    step=5,
    samples=35,
    epoch=0,
    random_states=[],
    metrics={"loss": 2.5},
    best={"validation_loss": 2.6, "step": 5},
    config={"run": {"steps": 20}},
    lineage={"snapshot": "0" * 64, "world": 1},
    at=12.0,
)


def fresh(seed: int) -> tuple[Decoder, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Decoder(DecoderShape(layers=1, width=16, heads=2, kv_heads=1, hidden=32), 64, 8)
    return model, adamw(model, Optimiser(learning_rate=0.01))


def step(model: Decoder, optimiser: torch.optim.AdamW) -> None:
    tokens = torch.randint(0, 64, (2, 8))
    torch.autograd.backward(model(tokens).square().mean())
    optimiser.step()
    optimiser.zero_grad()


def trained() -> tuple[Decoder, torch.optim.AdamW]:
    model, optimiser = fresh(seed=0)
    for _ in range(3):
        step(model, optimiser)
    return model, optimiser


def test_training_goes_on_from_a_checkpoint_bit_for_bit() -> None:
    model, optimiser = trained()
    files = state.pack(model, optimiser, PROGRESS)
    random_state = json.loads(json.dumps(state.random_state()))
    step(model, optimiser)

    resumed, its_optimiser = fresh(seed=1)
    state.load_model(files, resumed)
    state.load_optimiser(files, resumed, its_optimiser)
    state.restore_random_state(random_state)
    step(resumed, its_optimiser)
    assert state.pack(resumed, its_optimiser, PROGRESS) == state.pack(model, optimiser, PROGRESS)


def test_the_optimisers_state_is_kept_by_parameter_name() -> None:
    model, optimiser = trained()
    moments = safetensors.torch.load(state.pack(model, optimiser, PROGRESS)[format.OPTIMISER])
    names = [name for name, _ in model.named_parameters()]
    assert set(moments) == {f"{name}/{key}" for name in names for key in ("step", "exp_avg", "exp_avg_sq")}
    assert float(moments["head.weight/step"]) == 3.0


def test_rotary_tables_are_computed_and_not_kept() -> None:
    model, optimiser = trained()
    weights = safetensors.torch.load(state.pack(model, optimiser, PROGRESS)[format.MODEL])
    assert set(weights) == {name for name, _ in model.named_parameters()}


def test_progress_reads_back_with_the_random_states_of_all_ranks() -> None:
    model, optimiser = trained()
    kept = json.loads(json.dumps(state.random_state()))
    progress = replace(PROGRESS, random_states=[{"rank": 0, **kept}, {"rank": 1, **kept}])
    assert state.read_progress(state.pack(model, optimiser, progress)) == progress


def test_every_random_generator_continues_where_it_was() -> None:
    def draw() -> tuple[float, float, list[float]]:
        return random.random(), random.gauss(0, 1), [*np.random.random(3), np.random.normal(), *torch.rand(3).tolist()]

    draw()
    kept = json.loads(json.dumps(state.random_state()))
    following = draw(), draw()
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    state.restore_random_state(kept)
    assert (draw(), draw()) == following
