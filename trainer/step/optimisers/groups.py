"""Parameter groups: which parameters decay, and which of them one fused update can take together."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor


def by_decay(parameters: Iterable[Tensor], decay: float) -> list[dict[str, Any]]:
    """Groups of the parameters that require gradients: matrices and kernels decay; norms and biases do not.

    A fused update takes tensors of one device mesh only, so that each mesh has groups of its own.
    """
    alike: dict[tuple[bool, object], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            key = parameter.dim() >= 2, getattr(parameter, "device_mesh", None)
            alike.setdefault(key, []).append(parameter)
    return [{"params": group, "weight_decay": decay if decays else 0.0} for (decays, _), group in alike.items()]
