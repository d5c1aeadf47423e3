"""PowerSGD: DDP's ranks exchange each gradient matrix as the product of two thin matrices.

After Vogels et al., arXiv:1905.13727, algorithms 1 and 2. A rank adds the error of its approximation to its next
gradient. PyTorch's own hook stores these errors by bucket; this one stores them by parameter, so that a checkpoint can
hold them whatever the buckets are.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

LEAST_SAVING = 2
"""A matrix is approximated only if its two factors are at least this many times smaller, as in PyTorch's hook."""


class PowerSGD:
    """A communication hook of DDP, with the state of one rank."""

    def __init__(self, model: nn.Module, rank: int, seed: int) -> None:
        """`rank` is that of the approximations. The first factors are drawn from `seed`, which all ranks share."""
        random = torch.Generator().manual_seed(seed)
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
        self._errors: dict[str, Tensor] = {}
        self._factors: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            rows, columns = _shape(parameter)
            if parameter.requires_grad and LEAST_SAVING * rank * (rows + columns) < rows * columns:
                self._factors[name] = torch.randn(columns, rank, generator=random).to(parameter)
                self._errors[name] = torch.zeros(rows, columns).to(parameter)

    def state(self) -> dict[str, Tensor]:
        """This rank's errors and factors, with which it continues exactly."""
        errors = {f"error/{name}": error for name, error in self._errors.items()}
        return errors | {f"factor/{name}": factor for name, factor in self._factors.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def hook(self, _: object, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket over the ranks, in two rounds.

        It waits for both, so that all ranks run them in the same order; on a GPU, the stream waits.
        """
        gradients = {self._names[p]: g for p, g in zip(bucket.parameters(), bucket.gradients(), strict=True)}
        matrices = {name: g.view(_shape(g)) for name, g in gradients.items() if name in self._factors}
        others = [gradient for name, gradient in gradients.items() if name not in self._factors]
        for name, matrix in matrices.items():
            matrix.add_(self._errors[name])
        lefts = [matrix @ self._factors[name] for name, matrix in matrices.items()]
        _average([*others, *lefts])
        lefts = [torch.linalg.qr(p).Q for p in lefts]
        rights = [matrix.T @ p for matrix, p in zip(matrices.values(), lefts, strict=True)]
        _average(rights)
        for (name, matrix), p, q in zip(matrices.items(), lefts, rights, strict=True):
            approximation = p @ q.T
            torch.sub(matrix, approximation, out=self._errors[name])
            self._factors[name].copy_(q)
            matrix.copy_(approximation)
        return _done(bucket.buffer())


def _shape(tensor: Tensor) -> tuple[int, int]:
    """Rows and columns of a parameter seen as a matrix; a vector is a single column."""
    rows = tensor.shape[0] if tensor.dim() else 1
    return rows, tensor.numel() // rows


def _average(tensors: list[Tensor]) -> None:
    """The mean over the ranks, in place, by one all-reduce."""
    if not tensors:
        return
    joined = torch.cat([tensor.flatten() for tensor in tensors]) / dist.get_world_size()
    dist.all_reduce(joined)
    means = torch.split(joined, [tensor.numel() for tensor in tensors])
    for tensor, mean in zip(tensors, means, strict=True):
        tensor.copy_(mean.view_as(tensor))


def _done(result: Tensor) -> torch.futures.Future[Tensor]:
    future: torch.futures.Future[Tensor] = torch.futures.Future(
        devices=[result.device] if result.device.type == "cuda" else None
    )
    future.set_result(result)
    return future
