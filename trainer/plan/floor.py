"""The floor: bytes that a rank needs in any case, by multiplication alone, without running the model.

A plan takes seconds, or a minute for a large model. The floor takes none: a recipe whose floor is above the room cannot
fit, and a training whose floor is far below needs no plan before it starts.
"""

from slipway.trainer.plan.question import Question

WEIGHT_BYTES = 4
"""Weights, gradients and the optimiser's state are fp32 in every precision."""
STREAM_BYTES = 2
"""A number between two blocks, in the narrowest precision."""
FAR_BELOW = 8
"""A floor of less than one part in so many leaves room for all else: activations, logits and buffers."""


def floor(question: Question) -> int:
    """Bytes that a rank of an average stage takes at least; 0 for a model that says nothing of its size.

    They are its part of the weights, the gradients and the optimiser's state, and the inputs of the blocks of one
    micro-batch, which are kept even if all else is computed again. Raises ValueError for a layout that does not fit.
    """
    mesh, shape, data = question.mesh, question.model, question.data
    copies = 1 if question.run.freeze else 2 + question.optimiser.copies
    state = shape.least_weights(data) * WEIGHT_BYTES * copies * mesh.replicas // mesh.ranks
    shares = mesh.pipeline * mesh.tensor * mesh.context
    micro = min(question.batch.micro, -(-question.batch.sequences // mesh.data))
    return state + micro * shape.least_kept(data) * STREAM_BYTES // shares


def may_not_fit(question: Question, rank_bytes: int) -> bool:
    """Whether a plan is worth its seconds for a rank with so much memory: also for a model of unknown size."""
    return not 0 < floor(question) * FAR_BELOW < rank_bytes
