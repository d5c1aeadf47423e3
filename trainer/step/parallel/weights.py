"""Loads whole tensors into a model that is laid over the ranks."""

from collections.abc import Mapping

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, ValueType, set_model_state_dict


def load(model: nn.Module, given: Mapping[str, Tensor]) -> None:
    """Load each parameter of this rank from its part of the tensor of that name; every rank is given all tensors."""
    here: dict[str, ValueType] = {name: given[name] for name in model.state_dict()}
    set_model_state_dict(model, here, options=StateDictOptions(full_state_dict=True))
