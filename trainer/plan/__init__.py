"""The plan: what a training would take on each rank of its layout, found by running its own code without memory.

`question` says what is asked, `stages` measures it with fake ranks and fake tensors, `verdict` compares it with the
hardware of a profile, and `asking` does so from a process that must not import torch. `python -m slipway.trainer.plan`
reads a question and prints the measure.
"""
