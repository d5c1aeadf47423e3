"""Continuous batching: requests join and leave the batch between tokens, so none waits for the longest answer.

One thread runs the engine. Each turn first reads a piece of the waiting prompts into free rows of the cache, and then
generates one token for every row that is answering. A turn delivers the new tokens of all answers together.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from slipway.serving.engine.network import InferenceDecoder
from slipway.serving.engine.sampling import draw, generator
from slipway.serving.engine.sampling_settings import Sampling

PIECE = 512
"""Tokens of a prompt to read between two steps; more would delay the answers in progress."""
Finish = str
"""The reason why an answer ended: stop, length, cancelled or error."""


@dataclass(eq=False)
class Sequence:
    """One answer in progress."""

    prompt: list[int]
    most: int
    """The most new tokens."""
    sampling: Sampling
    ends: frozenset[int] = frozenset()
    """The tokens that end an answer without being part of it."""
    scored: bool = False
    """Whether to compute log-probabilities, including those of the prompt's tokens."""
    top: int = 1
    """With `scored`, the number of likeliest tokens to record at each position."""
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    """With `scored`, the log-probability of each token of the prompt except the first."""
    logprobs: list[float] = field(default_factory=list)
    """With `scored`, the log-probability of each new token."""
    likeliest: list[list[tuple[int, float]]] = field(default_factory=list)
    """The likeliest tokens with their log-probabilities, in falling order, for each entry of `chances` and then of
    `logprobs`."""
    finish: Finish = ""
    error: str = ""
    cancelled: bool = False
    begun_at: float = field(default_factory=time.monotonic)
    first_at: float = 0.0
    read: int = 0
    """The number of the prompt's tokens that are in the cache."""
    numbers: torch.Generator | None = None

    @property
    def length(self) -> int:
        """The number of tokens in the cache after the next one is read."""
        return len(self.prompt) + len(self.tokens)


Deliver = Callable[[list[Sequence]], None]
"""Receives the answers that have a new token or have ended, on the engine's thread."""


@dataclass
class Counts:
    """Counters of the engine's work, for its metrics."""

    steps: int = 0
    rows: int = 0
    """The number of answers in the batch, summed over all steps."""
    prompt_tokens: int = 0
    tokens: int = 0
    busy_seconds: float = 0.0


class AnswerEngine:
    """Answers sequences with one decoder, on a thread of its own."""

    def __init__(self, decoder: InferenceDecoder, deliver: Deliver) -> None:
        self._decoder = decoder
        self._deliver = deliver
        self.rows = decoder.cache.keys.shape[1]
        self.counts = Counts()
        self._arrived: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._reading: Sequence | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failed = ""
        """The error that stopped the engine; empty while it runs."""

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current turn and leave the remaining sequences unanswered."""
        self._arrived.put(None)
        self._thread.join()

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence, which must fit into a row of the cache."""
        assert len(sequence.prompt) > 0 and len(sequence.prompt) + sequence.most <= self._decoder.longest
        sequence.numbers = generator(sequence.sampling)
        self._arrived.put(sequence)

    @property
    def waiting(self) -> int:
        """The number of sequences without a row."""
        return len(self._waiting) + self._arrived.qsize()

    @property
    def answering(self) -> int:
        return len(self._active) + (self._reading is not None)

    @torch.inference_mode()
    def _run(self) -> None:
        try:
            while self._take():
                began = time.monotonic()
                changed = self._turn()
                self.counts.busy_seconds += time.monotonic() - began
                if changed:
                    self._deliver(changed)
        except Exception as error:  # the engine cannot continue: it fails all requests, and the process exits
            self.failed = f"{type(error).__name__}: {error}"
            remaining = [*self._active, *([self._reading] if self._reading else []), *self._waiting]
            for sequence in remaining:
                sequence.finish = "error"
                sequence.error = self.failed
            self._deliver(remaining)

    def _take(self) -> bool:
        """Take the new sequences from the queue, and wait for one if there is no other work; False after `stop`."""
        busy = bool(self._active or self._reading or self._waiting)
        while True:
            try:
                arrived = self._arrived.get(block=not busy)
            except queue.Empty:
                return True
            if arrived is None:
                return False
            self._waiting.append(arrived)
            busy = True

    def _turn(self) -> list[Sequence]:
        """Read a piece of the prompts and generate one token for every row; returns the answers that changed."""
        changed = self._drop_cancelled()
        remaining = PIECE
        while remaining > 0 and self._next_prompt() is not None:
            before = self.counts.prompt_tokens
            changed += self._read_piece(remaining)
            remaining -= self.counts.prompt_tokens - before
        if self._active:
            changed += [sequence for sequence in self._step() if sequence not in changed]
        return changed

    def _next_prompt(self) -> Sequence | None:
        """The prompt that is being read, or the next one if there is a row for it."""
        if self._reading is None and self._waiting and len(self._active) < self.rows:
            self._reading = self._waiting.popleft()
        return self._reading

    def _read_piece(self, most: int) -> list[Sequence]:
        """Read the next `most` tokens of the prompt. After its last piece the sequence joins the batch, with its first
        new token."""
        sequence = self._reading
        row = len(self._active)
        assert sequence is not None
        piece = torch.tensor(sequence.prompt[sequence.read : sequence.read + most], device=self._device)
        logits = self._decoder.prefill(piece, row, sequence.read, every=sequence.scored)
        if sequence.scored:
            self._score(sequence, logits)
        sequence.read += len(piece)
        self.counts.prompt_tokens += len(piece)
        if sequence.read < len(sequence.prompt):
            return []
        self._reading = None
        self._active.append(sequence)
        self._append([sequence], logits[-1:])
        self._leave()
        return [sequence]

    def _step(self) -> list[Sequence]:
        there = list(self._active)
        last = torch.tensor([sequence.tokens[-1] for sequence in there], device=self._device)
        logits = self._decoder.step(last, [sequence.length - 1 for sequence in there])
        self.counts.steps += 1
        self.counts.rows += len(there)
        self._append(there, logits)
        self._leave()
        return there

    def _append(self, there: list[Sequence], logits: torch.Tensor) -> None:
        """Draw a token for each sequence, and finish those that have ended."""
        drawn = draw(logits, [(sequence.sampling, sequence.numbers) for sequence in there])
        self.counts.tokens += len(there)
        for row, (sequence, token) in enumerate(zip(there, drawn, strict=True)):
            sequence.first_at = sequence.first_at or time.monotonic()
            if token in sequence.ends or sequence.most == 0:
                sequence.finish = "stop" if sequence.most else "length"
                continue
            sequence.tokens.append(token)
            if sequence.scored:
                chances = logits[row].log_softmax(-1)
                sequence.logprobs.append(float(chances[token]))
                sequence.likeliest += _likeliest(chances[None], sequence.top)
            if len(sequence.tokens) >= sequence.most:
                sequence.finish = "length"

    def _score(self, sequence: Sequence, logits: torch.Tensor) -> None:
        """Record the log-probability of each token of the prompt that follows a token of this piece."""
        following = sequence.prompt[sequence.read + 1 : sequence.read + 1 + len(logits)]
        expected = torch.tensor(following, device=self._device, dtype=torch.long)[:, None]
        chances = logits[: len(following)].log_softmax(-1)
        sequence.chances += chances.gather(1, expected)[:, 0].tolist()
        sequence.likeliest += _likeliest(chances, sequence.top)

    def _drop_cancelled(self) -> list[Sequence]:
        dropped = [
            sequence for sequence in (*self._active, *self._waiting) if sequence.cancelled and not sequence.finish
        ]
        if self._reading is not None and self._reading.cancelled:
            dropped.append(self._reading)
            self._reading = None  # its row, the one after the last active row, is free again
        for cancelled in dropped:
            cancelled.finish = "cancelled"
        self._waiting = deque(sequence for sequence in self._waiting if not sequence.finish)
        self._leave()
        return dropped

    def _leave(self) -> None:
        """Remove ended sequences from the batch and move the last rows into their places."""
        reading = self._reading
        for row in reversed(range(len(self._active))):
            if not self._active[row].finish:
                continue
            last = len(self._active) - 1
            if row != last:
                self._decoder.cache.move(last, row, self._active[last].length)
                self._active[row] = self._active[last]
            self._active.pop()
            if reading is not None and reading.read:
                self._decoder.cache.move(last + 1, last, reading.read)

    @property
    def _device(self) -> torch.device:
        return self._decoder.weights.embedding.device


def _likeliest(chances: torch.Tensor, count: int) -> list[list[tuple[int, float]]]:
    """The `count` likeliest tokens of each row, each with its log-probability; chances: [rows, vocabulary]."""
    best = chances.topk(min(max(1, count), chances.shape[-1]), -1)
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [list(zip(ids, values, strict=True)) for ids, values in rows]
