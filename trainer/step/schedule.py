"""The learning rate as a pure function of the step: a linear warm-up, then the schedule of the configuration."""

import math

from slipway.trainer.config.sections import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """The rate of `step`, from 0 to steps - 1: it rises to `learning_rate`, then falls to `final_fraction` of it.

    The constant schedule stays at `learning_rate`.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    height = _height(config, step, steps)
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * height)


def consequence(before: tuple[OptimizerConfig, int], after: tuple[OptimizerConfig, int], step: int) -> str:
    """A sentence about the effect of another schedule, or another number of steps, on the learning rate after `step`.

    `before` and `after` are the optimiser's configuration and the number of steps.
    """
    old_config, last = before
    config, end = after
    was = learning_rate(old_config, step, last)
    now = learning_rate(config, step, end)
    if config.schedule == "constant" and was == now:
        return f"the learning rate stays at {now:.4g}"
    comparison = ", as it would have been" if now == was else f", and not {was:.4g}"
    begins = f"is {now:.4g} at step {step + 1}{comparison}"
    ends = f"{learning_rate(config, end - 1, end):.4g} at step {end}, and not at step {last}"
    return f"the learning rate {begins}; it comes to {ends}"


def _height(config: OptimizerConfig, step: int, steps: int) -> float:
    """The rate after warm-up, relative to its range: 1 is the highest, 0 the final value."""
    match config.schedule:
        case "cosine":
            return (1 + math.cos(math.pi * _passed(step, config.warmup_steps, steps))) / 2
        case "linear":
            return 1 - _passed(step, config.warmup_steps, steps)
        case "wsd":
            # Warm-up, stable, decay: arXiv:2404.06395, with the linear decay of arXiv:2405.18392.
            decay = round(config.decay_fraction * steps)
            return 1 - _passed(step, max(config.warmup_steps, steps - 1 - decay), steps)
        case "constant":
            return 1.0


def _passed(step: int, start: int, steps: int) -> float:
    """The fraction of the way from step `start` to the last one; 0 before `start`."""
    return min(1.0, max(0, step - start) / max(1, steps - 1 - start))
