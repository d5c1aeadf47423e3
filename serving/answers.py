"""A worker's HTTP interface: it turns requests into sequences for the engine, and tokens into documents and events."""

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from slipway.serving.api import answering, request_parsing
from slipway.serving.api.answering import AnswerHead, Logprobs
from slipway.serving.api.request_parsing import Ask, BadRequest, Message
from slipway.serving.api.texts import GrowingText, ServedTokenizer
from slipway.serving.engine.batching import AnswerEngine, Sequence
from slipway.serving.engine.network import InferenceDecoder
from slipway.serving.order import WorkerOrder
from slipway.serving.problems import as_documents, under_names
from slipway.trainer.base import parsing

WAITING = 256
"""The most requests that wait for a row of the cache. The worker refuses further ones, and the client retries."""
MAX_BYTES = 16 << 20
LAST_SECONDS = 1.0


class Answers:
    """Serves one engine through OpenAI's API."""

    def __init__(self, decoder: InferenceDecoder, order: WorkerOrder) -> None:
        self.tokenizer = ServedTokenizer(order.folder)
        self._order = order
        self._longest = decoder.longest
        self._vocabulary = decoder.weights.vocabulary
        self.engine = AnswerEngine(decoder, self._deliver)
        self._news: dict[Sequence, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()

    def application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BYTES, middlewares=[under_names(()), as_documents])
        application.router.add_post("/v1/completions", self._completions)
        application.router.add_post("/v1/chat/completions", self._chat)
        application.router.add_get("/health", self._health)
        application.router.add_get("/figures", self._figures)
        return application

    def _deliver(self, changed: list[Sequence]) -> None:
        self._loop.call_soon_threadsafe(self._wake, changed)

    def _wake(self, changed: list[Sequence]) -> None:
        for sequence in changed:
            news = self._news.get(sequence)
            if news is not None:
                news.set()
        if self.engine.failed:  # once all waiting requests have their answers, the front starts another worker
            self._loop.call_later(LAST_SECONDS, os._exit, 1)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _health(self, _: web.Request) -> web.Response:
        if self.engine.failed:
            return web.json_response(answering.problem(self.engine.failed, "server_error"), status=500)
        return web.json_response({"model": self._order.model, "rows": self.engine.rows})

    async def _figures(self, _: web.Request) -> web.Response:
        counts = vars(self.engine.counts)
        return web.json_response({**counts, "waiting": self.engine.waiting, "answering": self.engine.answering})

    async def _answer(self, request: web.Request, chat: bool) -> web.StreamResponse:
        try:
            ask = request_parsing.parse(await _document(request), chat)
            sequence = self._sequence(ask)
        except BadRequest as error:
            problem = answering.problem(str(error), field=error.field or None, code=error.code)
            return web.json_response(problem, status=400)
        if self.engine.waiting >= WAITING or self.engine.failed:
            problem = answering.problem(self.engine.failed or f"{WAITING} requests wait already", "server_error")
            return web.json_response(problem, status=503, headers={"Retry-After": "1"})
        news = self._news[sequence] = asyncio.Event()
        self.engine.submit(sequence)
        try:
            head = AnswerHead(chat, self._order.model, self._order.fingerprint, ask.top)
            answer = AnswerInProgress(ask, sequence, self.tokenizer.growing(ask.stop), head, news)
            if ask.stream:
                return await self._stream(request, answer)
            while not await answer.read_tokens():
                pass
            return self._complete(answer)
        finally:
            sequence.cancelled = True  # without effect on a sequence that has ended
            del self._news[sequence]

    def _complete(self, answer: "AnswerInProgress") -> web.Response:
        sequence = answer.sequence
        if sequence.finish == "error":
            return web.json_response(answering.problem(sequence.error, "server_error"), status=500)
        text = self._echo(answer) + answer.text.text
        logprobs = LogprobPieces(self.tokenizer, answer.ask, sequence).take()
        return web.json_response(answer.head.complete(text, _finish(sequence), _usage(sequence), logprobs))

    def _echo(self, answer: "AnswerInProgress") -> str:
        """The text of the prompt if the request asks for it, otherwise empty."""
        if not answer.ask.echo:
            return ""
        return self.tokenizer.decode(answer.sequence.prompt)

    async def _stream(self, request: web.Request, answer: "AnswerInProgress") -> web.StreamResponse:
        sequence = answer.sequence
        head = answer.head
        text = answer.text
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        first = True
        ended = False
        pieces = LogprobPieces(self.tokenizer, answer.ask, sequence)
        while not ended:
            ended = await answer.read_tokens()
            if first and sequence.finish == "error":
                return web.json_response(answering.problem(sequence.error, "server_error"), status=500)
            piece = text.take()
            if first:
                await response.prepare(request)
                piece = self._echo(answer) + piece
            if piece or first:
                await response.write(head.event(piece, None, first, pieces.take()))
                first = False
        if sequence.finish == "error":
            await response.write(answering.error_event(sequence.error))
        else:
            await response.write(head.event(text.take(), _finish(sequence), False, pieces.take()))
            if answer.ask.usage:
                await response.write(head.usage_event(_usage(sequence)))
            await response.write(answering.DONE)
        await response.write_eof()
        return response

    def _sequence(self, ask: Ask) -> Sequence:
        """The engine's sequence for a request. Raises BadRequest for an empty prompt, or one that does not fit."""
        field = "messages" if ask.chat else "prompt"
        prompt = self._tokens(ask)
        if max(prompt, default=0) >= self._vocabulary:
            raise BadRequest(
                field,
                f"found the token {request_parsing.format_value(max(prompt))}, expected ids below {self._vocabulary}",
            )
        if not prompt:
            prompt = sorted(self.tokenizer.ends)[:1]  # in training, each document follows an end-of-document token
        if not prompt:
            raise BadRequest(field, "found nothing, expected a text")
        most = request_parsing.new_tokens(ask, len(prompt), self._longest)
        return Sequence(prompt, most, ask.sampling, self.tokenizer.ends, ask.logprobs, ask.top)

    def _tokens(self, ask: Ask) -> list[int]:
        if isinstance(ask.prompt, str):
            return self.tokenizer.encode(ask.prompt)
        if ask.chat:
            return self.tokenizer.encode(
                self.tokenizer.chat([message for message in ask.prompt if isinstance(message, Message)])
            )
        return [token for token in ask.prompt if isinstance(token, int)]


@dataclass(frozen=True)
class AnswerInProgress:
    """One answer that the engine is still making, and its text so far."""

    ask: Ask
    sequence: Sequence
    text: GrowingText
    head: AnswerHead
    news: asyncio.Event
    """Set when the sequence has new tokens."""

    async def read_tokens(self) -> bool:
        """Wait for the next tokens and add them to the text; returns whether they are the last ones."""
        await self.news.wait()
        self.news.clear()
        sequence = self.sequence
        ended = bool(sequence.finish)  # read before the tokens, because the engine's thread appends to them
        self.text.add(sequence.tokens)
        if self.text.stopped and ended and sequence.finish == "length":
            sequence.finish = "stop"  # the engine reached the length before this task found the stop text
        elif self.text.stopped and not ended:
            sequence.cancelled = True
            sequence.finish = "stop"
            ended = True
        if ended:
            self.text.end(sequence.tokens)
        return ended


class LogprobPieces:
    """The log-probabilities of an answer. Each piece of the answer brings those of its own tokens."""

    def __init__(self, tokenizer: ServedTokenizer, ask: Ask, sequence: Sequence) -> None:
        self._tokenizer = tokenizer
        self._ask = ask
        self._sequence = sequence
        self._sent_tokens = self._characters = 0

    def take(self) -> Logprobs | None:
        """The log-probabilities of the tokens since the last call; None if the request does not ask for them."""
        if not self._ask.logprobs:
            return None
        sequence = self._sequence
        echo = self._ask.echo
        scored = len(sequence.chances)
        new = len(sequence.logprobs)
        new = min(new, len(sequence.likeliest) - scored)  # the engine's thread appends to one list after the other
        ids = sequence.tokens[:new]
        chances: list[float | None] = [*sequence.logprobs[:new]]
        best: list[list[tuple[int, float]] | None] = [*sequence.likeliest[scored : scored + new]]
        if echo:
            ids = [*sequence.prompt, *ids]
            chances = [None, *sequence.chances, *chances]
            best = [None, *sequence.likeliest[:scored], *best]
        since = self._sent_tokens
        begin = self._characters
        word = self._tokenizer.token
        tokens = [word(id) for id in ids[since:]]
        likeliest = [
            None if ranking is None else [(word(id), chance) for id, chance in ranking] for ranking in best[since:]
        ]
        self._sent_tokens = len(ids)
        self._characters = begin + sum(map(len, tokens))
        return Logprobs(tokens, chances[since:], likeliest, begin)


async def _document(request: web.Request) -> Any:
    try:
        return parsing.value(await request.read())
    except ValueError as error:
        raise BadRequest("", f"not JSON: {error}") from None


def _finish(sequence: Sequence) -> str:
    return "length" if sequence.finish == "length" else "stop"


def _usage(sequence: Sequence) -> dict[str, int]:
    return answering.usage(len(sequence.prompt), len(sequence.tokens))
