"""Sight: attention inside documents, and attention of ranks that share a sequence."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from slipway.trainer.models.context_parallel import SequenceShare
from slipway.trainer.models.decoder.attention_mask import Span, attend, sight
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.node.world import World
from tests.trainer import gang
from tests.trainer.models.test_decoder import DATA, LENGTH, VOCAB, sizes, tokens

DOCUMENTS = [0, 3, 4, 11]
"""The first tokens of the documents of a sequence."""


def decoder(**changed: Any) -> Decoder:
    """A decoder of two blocks, with weights large enough to show an error."""
    torch.manual_seed(0)
    model = Decoder(replace(sizes(), **changed), DATA)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def begins(rows: int = 1) -> Tensor:
    """For each token, the first token of its document: [rows, LENGTH]."""
    return torch.tensor([[max(first for first in DOCUMENTS if first <= position) for position in range(LENGTH)]] * rows)


@pytest.mark.parametrize("changed", [{}, {"window": 3}, {"qk_norm": True}], ids=["all", "window", "normalized"])
def test_each_document_of_a_sequence_has_the_logits_that_it_has_alone(changed: dict[str, Any]) -> None:
    model, token_ids = decoder(attention="documents", **changed), tokens(2)
    together = model(token_ids, begins(2))
    for first, after in zip(DOCUMENTS, [*DOCUMENTS[1:], LENGTH], strict=True):
        assert torch.allclose(together[:, first:after], model(token_ids[:, first:after]), atol=1e-5)


def test_a_document_changes_nothing_in_the_others_and_without_bounds_it_does() -> None:
    model, token_ids = decoder(), tokens(1)
    changed = token_ids.clone()
    changed[:, :3] = (changed[:, :3] + 1) % VOCAB
    assert torch.equal(model(changed, begins())[:, 3:], model(token_ids, begins())[:, 3:])
    assert not torch.allclose(model(changed)[:, 3:], model(token_ids)[:, 3:])


def test_a_sequence_without_bounds_needs_no_mask() -> None:
    assert sight(LENGTH, torch.device("cpu"), None, window=3, share=None) is None


def test_the_mask_of_blocks_gives_the_attention_of_the_dense_one() -> None:
    """On a GPU the same functions are compiled; here FlexAttention runs as it is written, which is forward only."""
    positions = torch.arange(LENGTH)
    span = Span(positions[4:], positions.flip(0), torch.maximum(begins(2), positions - 5)[:, 4:])
    query, key, value = torch.randn(2, 4, LENGTH - 4, 16), torch.randn(2, 2, LENGTH, 16), torch.randn(2, 2, LENGTH, 16)
    dense, blocks = (attend(query, key, value, mask) for mask in (span.dense(), span.blocks(compiles=False)))
    assert torch.allclose(dense, blocks, atol=1e-5)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_that_share_a_sequence_have_each_token_once_and_see_equally_much(ranks: int) -> None:
    length, group = 12 * ranks, cast(dist.ProcessGroup, None)  # cutting asks nobody
    shares = [SequenceShare(rank, ranks, group) for rank in range(ranks)]
    own = [share.position_ids(12, torch.device("cpu")) for share in shares]
    assert sorted(torch.cat(own).tolist()) == list(range(length))
    assert len({int((positions + 1).sum()) for positions in own}) == 1
    sequence = torch.arange(length)[None]
    assert all(torch.equal(share.cut(sequence)[0], positions) for share, positions in zip(shares, own, strict=True))
    assert torch.equal(shares[0].gathered_places(12, torch.device("cpu")), torch.cat(own))


def kept_bytes(world: World, shares: bool) -> int:
    """The bytes that a forward pass keeps for the backward pass, on this rank."""
    model = decoder()
    assert dist.group.WORLD is not None
    model.share = SequenceShare(world.rank, world.size, dist.group.WORLD) if shares else None
    token_ids = tokens(2) if model.share is None else model.share.cut(tokens(2))
    tensors: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(token_ids)
    sizes = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in weights)


@pytest.mark.slow
def test_ranks_that_share_a_sequence_keep_less_of_it() -> None:
    """All but keys, values and the mask is divided."""
    [undivided, _], shared = gang.run(2, kept_bytes, False), gang.run(2, kept_bytes, True)
    assert max(shared) < 0.7 * undivided
