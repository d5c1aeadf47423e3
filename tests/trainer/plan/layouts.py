"""Ten layouts of small models that two processor cores can train, and the peaks of their ranks, planned and real."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Communication, OptimizerConfig, Run
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.plan import question as questions
from slipway.trainer.plan.question import Question

CODE = Path(__file__).parents[3]
DECODER = DecoderShape(layers=8, width=256, heads=8, kv_heads=4, hidden=704)
ENCODER = EncoderShape(layers=4, width=256, heads=4, hidden=1024)
TOKENS = Data(vocabulary=2048, length=128)


def question(
    model: Shape = DECODER,
    ranks: int = 1,
    data: Data = TOKENS,
    batch: tuple[int, int] = (16, 4),
    precision: Any = "fp32",
    optimizer: Any = "adamw",
    **layout: Any,
) -> Question:
    """A small training on one machine."""
    sequences, micro = batch
    return Question(
        model=model,
        batch=Batch(sequences=sequences, length=data.length, micro=micro),
        optimizer=OptimizerConfig(kind=optimizer, learning_rate=1e-3),
        run=Run(steps=10, precision=precision),
        layout=Layout(**layout),
        communication=Communication(),
        data=data,
        nodes=1,
        ranks_per_node=ranks,
        kernels="cpu",
    )


LAYOUTS = {
    "alone": question(),
    "alone-bf16-recompute": question(precision="bf16", activations="recompute"),
    "alone-muon-selective": question(optimizer="muon", activations="selective"),
    "replicas": question(ranks=2),
    "full-shard": question(ranks=2, shard="full"),
    "full-shard-bf16-recompute": question(ranks=2, shard="full", precision="bf16", activations="recompute"),
    "tensor": question(ranks=2, tensor=2),
    "tensor-full-shard": question(ranks=4, tensor=2, shard="full"),
    "pipeline": question(ranks=2, pipeline=2),
    "pipeline-interleaved": question(ranks=2, pipeline=2, schedule="interleaved", stages_per_rank=2),
    "context": question(ranks=2, context=2),
    "context-full-shard": question(ranks=4, context=2, shard="full"),
    "encoder-full-shard": question(ENCODER, ranks=2, shard="full"),
    "vit": question(
        VisionShape(layers=4, width=192, heads=3, hidden=768, patch=8), data=Data(picture=(64, 64, 3), classes=100)
    ),
    "resnet": question(ResNetShape(blocks=(1, 1, 1, 1)), data=Data(picture=(64, 64, 3), classes=100), optimizer="sgd"),
}


def measured_peaks(layout_question: Question) -> list[int]:
    """The peak of each rank, in bytes, of a real training by torchrun."""
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(layout_question.ranks),
    ]
    done = subprocess.run(
        [*launch, "-m", "tests.trainer.plan.measured_process", json.dumps(questions.document(layout_question))],
        cwd=CODE,
        env={**os.environ, "PYTHONPATH": str(CODE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    peaks = [int(size) for size in re.findall(r"peak (\d+)", done.stdout)]
    assert len(peaks) == layout_question.ranks, done.stderr
    return sorted(peaks)
