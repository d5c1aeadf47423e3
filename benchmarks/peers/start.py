"""Torchtitan's way to start, in its least form: the meta device, FSDP2, memory, then each shard drawn or loaded by DCP.

``torchrun -m benchmarks.peers.start ACTION FOLDER LAYERS WIDTH HIDDEN VOCABULARY``; ACTION is draw, save or restore.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Parts(nn.Module):
    """Modules by name, which is all that a start needs of a model."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def block(width: int, hidden: int) -> Parts:
    sizes = {"q": (width, width), "k": (width, width // 2), "v": (width, width // 2), "o": (width, width)}
    sizes |= {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
    matrices = {name: nn.Linear(*shape, bias=False) for name, shape in sizes.items()}
    return Parts({**matrices, "attention_norm": nn.RMSNorm(width), "feed_forward_norm": nn.RMSNorm(width)})


def started(sizes: list[int], draws: bool) -> tuple[nn.Module, Any]:
    layers, width, hidden, vocabulary = sizes
    with torch.device("meta"):
        blocks = nn.ModuleList(block(width, hidden) for _ in range(layers))
        ends = {"embedding": nn.Embedding(vocabulary, width), "head": nn.Linear(width, vocabulary, bias=False)}
        model = Parts({"blocks": blocks, **ends, "norm": nn.RMSNorm(width)})
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in blocks:
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    for parameter in model.parameters() if draws else ():
        nn.init.trunc_normal_(parameter, std=0.02) if parameter.dim() > 1 else nn.init.ones_(parameter)
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main(action: str, folder: Path, sizes: list[int]) -> None:
    dist.init_process_group("gloo")
    get_state_dict(*started([8, 64, 64, sizes[3]], True))  # what is imported and allocated once is not the model's
    Path("/proc/self/clear_refs").write_text("5")
    before, begun = status("VmRSS"), time.perf_counter()
    model, optimizer = started(sizes, draws=action != "restore")
    if action != "draw":
        state: dict[str, Any] = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        if action == "save":
            save(state, checkpoint_id=folder / "peer")
        else:
            load(state, checkpoint_id=folder / "peer")
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    rank_figures: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(rank_figures, (status("VmHWM") - before, time.perf_counter() - begun))
    if dist.get_rank() == 0 and action != "save":
        peak, seconds = (max(figure) for figure in zip(*rank_figures, strict=True))
        (folder / f"peer-{action}.json").write_text(json.dumps({"peak": peak, "seconds": seconds}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), [int(number) for number in sys.argv[3:]])
