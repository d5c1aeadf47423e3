"""AdamW, and the learning rate as a pure function of the step."""

import math

import torch
from torch import nn

from trainer.sections import Optimiser


def adamw(model: nn.Module, config: Optimiser) -> torch.optim.AdamW:
    """Fused AdamW; matrices decay, vectors (norms) don't."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)


def learning_rate(config: Optimiser, step: int, steps: int) -> float:
    """The rate of step 0 .. steps - 1: linear warm-up, then a cosine down to final_fraction of the highest."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, steps - 1 - config.warmup_steps)
    cosine = (1 + math.cos(math.pi * min(1.0, progress))) / 2
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * cosine)
