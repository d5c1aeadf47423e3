"""Continuous batching: requests join and leave the batch between two tokens, and nobody waits for the longest answer.

One thread runs the engine. A turn takes a piece of the prompts that wait first into free rows of the cache, then steps
all rows that answer by one token. What a turn made is handed over at once, for all answers together.
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
"""Tokens of a prompt that are read between two steps: more would hold up the answers that are under way."""
Finish = str
"""Why an answer ended: stop, length, cancelled, error."""


@dataclass(eq=False)
class Sequence:
    """One answer under way."""

    prompt: list[int]
    most: int
    """New tokens at most."""
    sampling: Sampling
    ends: frozenset[int] = frozenset()
    """The tokens that end an answer; they are not part of it."""
    scored: bool = False
    """Whether the log-probability of each token of the prompt is wanted too."""
    top: int = 1
    """How many of the likeliest tokens are noted at each place, where `scored`."""
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    """The log-probability of each token of the prompt, but the first, where `scored`."""
    logprobs: list[float] = field(default_factory=list)
    """That of each new token, where `scored`."""
    likeliest: list[list[tuple[int, float]]] = field(default_factory=list)
    """The likeliest tokens at each place of `chances` and then of `logprobs`, the likeliest first, each with its
    log-probability."""
    finish: Finish = ""
    error: str = ""
    cancelled: bool = False
    begun_at: float = field(default_factory=time.monotonic)
    first_at: float = 0.0
    read: int = 0
    """Tokens of the prompt that are in the cache."""
    numbers: torch.Generator | None = None

    @property
    def length(self) -> int:
        """Tokens in the cache once the next one is read."""
        return len(self.prompt) + len(self.tokens)


Deliver = Callable[[list[Sequence]], None]
"""Is given the answers that have a new token or have ended, on the engine's thread."""


@dataclass
class Counts:
    """What the engine has done, for its figures."""

    steps: int = 0
    rows: int = 0
    """The sum over the steps of the answers in each."""
    prompt_tokens: int = 0
    tokens: int = 0
    busy_seconds: float = 0.0


class AnswerEngine:
    """Answers sequences over one decoder, on a thread of its own."""

    def __init__(self, decoder: InferenceDecoder, deliver: Deliver) -> None:
        self._decoder, self._deliver = decoder, deliver
        self.rows = decoder.cache.keys.shape[1]
        self.counts = Counts()
        self._arrived: queue.SimpleQueue[Sequence | None] = queue.SimpleQueue()
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._reading: Sequence | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.failed = ""
        """Why the engine has ended by itself; empty while it has not."""

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the turn under way; what is not answered stays unanswered."""
        self._arrived.put(None)
        self._thread.join()

    def submit(self, sequence: Sequence) -> None:
        """Answer a sequence, which fits into a row."""
        assert len(sequence.prompt) > 0 and len(sequence.prompt) + sequence.most <= self._decoder.longest
        sequence.numbers = generator(sequence.sampling)
        self._arrived.put(sequence)

    @property
    def waiting(self) -> int:
        """Sequences that have no row yet."""
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
        except (
            Exception
        ) as error:  # an engine that broke answers nobody: all requests are refused, and the process ends
            self.failed = f"{type(error).__name__}: {error}"
            remaining = [*self._active, *([self._reading] if self._reading else []), *self._waiting]
            for sequence in remaining:
                sequence.finish, sequence.error = "error", self.failed
            self._deliver(remaining)

    def _take(self) -> bool:
        """Take what has arrived, waiting for it when there is nothing else to do; False at the end."""
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
        """Read a piece of the prompts, and one token of every row; the answers that have news."""
        changed, remaining = self._drop_cancelled(), PIECE
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
        """Read on in the prompt, `most` tokens; it joins the others after its last piece, with its first token."""
        sequence, row = self._reading, len(self._active)
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
        """Draw a token for each, and see who has ended."""
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
        """Note how likely each token of the prompt was that follows one of this piece."""
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
            self._reading = None  # its row was the one after the last, and nobody has it now
        for cancelled in dropped:
            cancelled.finish = "cancelled"
        self._waiting = deque(sequence for sequence in self._waiting if not sequence.finish)
        self._leave()
        return dropped

    def _leave(self) -> None:
        """Take the ended out of the batch; the last rows move into theirs."""
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
