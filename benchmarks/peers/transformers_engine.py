"""A worker whose engine is plain `transformers.generate`, behind the same HTTP interface as ours: one answer at a time.

Started by benchmarks/serving.py: ``python -m benchmarks.peers.transformers_engine FOLDER MODEL``.
"""

import asyncio
import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from aiohttp import web

from slipway.serving.answers import Answers
from slipway.serving.engine.batching import Counts, Deliver, Sequence
from slipway.serving.order import WorkerOrder


class GenerateEngine:
    """Has the parts of `slipway.serving.engine.batching.AnswerEngine` that answers over HTTP use."""

    def __init__(self, folder: Path, deliver: Deliver) -> None:
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._deliver, self.rows, self.counts, self.failed, self.answering = deliver, 1, Counts(), "", 0
        self._arrived: queue.SimpleQueue[Sequence] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def submit(self, sequence: Sequence) -> None:
        self._arrived.put(sequence)

    @property
    def waiting(self) -> int:
        return self._arrived.qsize()

    @torch.inference_mode()
    def _run(self) -> None:
        while True:
            sequence = self._arrived.get()
            prompt = torch.tensor([sequence.prompt])
            settings = {"max_new_tokens": sequence.most, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
            streamer = _Streamer(sequence, self._deliver)
            self._model.generate(prompt, attention_mask=torch.ones_like(prompt), streamer=streamer, **settings)


class _Streamer(transformers.generation.streamers.BaseStreamer):  # type: ignore[misc]
    def __init__(self, sequence: Sequence, deliver: Deliver) -> None:
        self._sequence, self._deliver, self._begun = sequence, deliver, False

    def put(self, value: Any) -> None:
        if self._begun:  # the first value is the prompt
            self._sequence.first_at = self._sequence.first_at or time.monotonic()
            self._sequence.tokens += value.flatten().tolist()
            self._deliver([self._sequence])
        self._begun = True

    def end(self) -> None:
        self._sequence.finish = "length"
        self._deliver([self._sequence])


async def serve(folder: Path, model: str) -> None:
    """Serve for ever; prints where."""
    from slipway.serving.worker import load

    order = WorkerOrder(folder, sys.argv[3], model, model, rows=1)
    answers = Answers(load(order), order)
    answers.engine = GenerateEngine(folder, answers._deliver)  # type: ignore[assignment]
    runner = web.AppRunner(answers.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}"}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
