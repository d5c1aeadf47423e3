"""A bigram model in plain PyTorch: a training script that Slipway starts and recovers."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway import script


def loss_of(model: nn.Module, windows: script.Tokens) -> Tensor:
    """Mean cross-entropy, nats per token; windows: [batch, length + 1]."""
    tokens = torch.from_numpy(windows.astype(np.int64))
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def main() -> None:
    with script.training() as training:
        settings = training.parameters
        torch.manual_seed(settings["seed"])
        vocabulary = training.text.tokenizer.vocab_size
        model = nn.Sequential(nn.Embedding(vocabulary, settings["width"]), nn.Linear(settings["width"], vocabulary))
        optimizer = torch.optim.AdamW(model.parameters(), settings["learning_rate"])

        # Windows of the shards on this node, in an order that only the seed and the step decide.
        windows = script.Sequences(training.tier, training.text, "train", settings["length"])
        held_out = script.Sequences(training.tier, training.text, "validation", settings["length"])
        samples = script.Order(windows.sizes, settings["seed"], block=64)
        first_held_out = np.arange(min(16, len(held_out)), dtype=np.uint64)

        if training.restored:
            state = torch.load(io.BytesIO(training.restored.files["state.pt"]))
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        for step in training.steps(settings["steps"]):
            numbers = samples.samples((step - 1) * settings["batch"], settings["batch"])
            loss = loss_of(model, windows.read(numbers))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            training.report(loss.item())
            if training.due(settings["checkpoint_every"]):
                with torch.no_grad():
                    measured = loss_of(model, held_out.read(first_held_out))
                file = io.BytesIO()
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
                training.commit({"state.pt": file.getvalue()}, validation_loss=measured.item())


if __name__ == "__main__":
    main()
