"""The plan: the memory and traffic of a training on each rank of its layout, from a run of its code without memory.

`question` has the inputs, `stages` measures them with fake ranks and fake tensors, `verdict` compares the measure with
the hardware of a profile, and `plan_client` starts the measure from a process that must not import torch. `python -m
slipway.trainer.plan` reads a question and prints the measure.
"""
