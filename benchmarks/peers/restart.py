"""The least that survives a kill under torchrun: DDP, AdamW, and torch.save of everything every few steps.

``torchrun benchmarks/peers/restart.py FOLDER LAYERS WIDTH LENGTH VOCABULARY EVERY``; appends a line to
FOLDER/marks.jsonl at each stage: {mark, t}.
"""

import json
import os
import sys
import time
from pathlib import Path


def mark(folder: Path, name: str) -> None:
    if os.environ["RANK"] == "0":
        with open(folder / "marks.jsonl", "a") as file:
            file.write(json.dumps({"mark": name, "t": time.time()}) + "\n")


def main(folder: Path, layers: int, width: int, length: int, vocabulary: int, every: int) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    if not dist.is_initialized():  # Ray Train has done it
        dist.init_process_group("gloo")
    mark(folder, "joined")
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True)
    body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(vocabulary, width), body, nn.Linear(width, vocabulary)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    mark(folder, "built")
    path, first = folder / "checkpoint.pt", 0
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    mark(folder, "loaded")
    for step in range(first + 1, 1_000_000):
        tokens = torch.randint(0, vocabulary, (2, length + 1))
        logits = model(tokens[:, :-1])
        torch.autograd.backward(nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark(folder, "step")
        if step % every == 0 and dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            with open(folder / "new.pt", "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            (folder / "new.pt").replace(path)
            mark(folder, "saved")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
