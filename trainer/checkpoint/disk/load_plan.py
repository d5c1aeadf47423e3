"""The load plan: the parts of a checkpoint's chunks that go to the parts of the target tensors, for any two layouts.

PyTorch's distributed checkpoint (DCP) makes it. Only a process that loads tensors imports this module, because the
import of DCP takes 0.8 s of CPU.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from slipway.trainer.checkpoint.disk.dtypes import DTYPES
from slipway.trainer.checkpoint.disk.manifest import TensorEntry


def reads(entries: Mapping[str, TensorEntry], targets: Mapping[str, Tensor]) -> Iterator[tuple[ReadItem, Tensor]]:
    """Each item to read from the chunks of `entries`, with the part of a target that receives it.

    Targets are plain tensors or DTensors, by name; each has an entry, which need not have all chunks of the tensor.
    """
    planner = DefaultLoadPlanner(flatten_state_dict=False)
    metadata = Metadata({name: _tensor_metadata(entry) for name, entry in entries.items()})
    planner.set_up_planner(dict(targets), metadata)
    for item in planner.finish_plan(planner.create_local_plan()).items:
        yield item, planner.resolve_tensor(item).detach()


def _tensor_metadata(entry: TensorEntry) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)) for chunk in entry.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=DTYPES[entry.dtype]), torch.Size(entry.shape), chunks)
