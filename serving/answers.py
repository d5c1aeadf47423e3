"""The answers of a worker over HTTP: requests become sequences of the engine, its tokens documents and events."""

import asyncio
import os
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
"""Requests that may wait for a row of the cache; further ones are refused, to be sent again later."""
MAX_BYTES = 16 << 20
LAST_SECONDS = 1.0


class Answers:
    """One engine behind OpenAI's API."""

    def __init__(self, decoder: InferenceDecoder, order: WorkerOrder) -> None:
        self.tokenizer, self._order, self._longest = ServedTokenizer(order.folder), order, decoder.longest
        self._vocabulary = decoder.weights.vocabulary
        self.engine = AnswerEngine(decoder, self._deliver)
        self._news: dict[Sequence, asyncio.Event] = {}
        self._loop = asyncio.get_running_loop()

    def application(self) -> web.Application:
        """The worker's application."""
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
            if (news := self._news.get(sequence)) is not None:
                news.set()
        if self.engine.failed:  # once those who wait have their answer, the front starts another worker
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
            text = self.tokenizer.growing(ask.stop)
            if ask.stream:
                return await self._stream(request, ask, sequence, text, head, news)
            while not await self._ended(sequence, text, news):
                pass
            return self._complete(ask, sequence, text, head)
        finally:
            sequence.cancelled = True  # nothing happens to one that has ended
            del self._news[sequence]

    async def _ended(self, sequence: Sequence, text: GrowingText, news: asyncio.Event) -> bool:
        """Wait for the next tokens and read them; whether they are the last ones."""
        await news.wait()
        news.clear()
        ended = bool(sequence.finish)  # asked before the tokens: the engine adds to them meanwhile
        text.add(sequence.tokens)
        if text.stopped and ended and sequence.finish == "length":
            sequence.finish = "stop"  # the engine was faster than whoever reads: it has not seen the text that stops it
        elif text.stopped and not ended:
            sequence.cancelled, sequence.finish, ended = True, "stop", True
        if ended:
            text.end(sequence.tokens)
        return ended

    def _complete(self, ask: Ask, sequence: Sequence, text: GrowingText, head: AnswerHead) -> web.Response:
        if sequence.finish == "error":
            return web.json_response(answering.problem(sequence.error, "server_error"), status=500)
        answer_text = self.tokenizer.decode(sequence.prompt) + text.text if ask.echo else text.text
        document = head.complete(
            answer_text, _finish(sequence), _usage(sequence), LogprobPieces(self.tokenizer, ask, sequence).take()
        )
        return web.json_response(document)

    async def _stream(
        self,
        request: web.Request,
        ask: Ask,
        sequence: Sequence,
        text: GrowingText,
        head: AnswerHead,
        news: asyncio.Event,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        first, ended, pieces = True, False, LogprobPieces(self.tokenizer, ask, sequence)
        while not ended:
            ended = await self._ended(sequence, text, news)
            if first and sequence.finish == "error":
                return web.json_response(answering.problem(sequence.error, "server_error"), status=500)
            piece = text.take()
            if first:
                await response.prepare(request)
                piece = self.tokenizer.decode(sequence.prompt) + piece if ask.echo else piece
            if piece or first:
                await response.write(head.event(piece, None, first, pieces.take()))
                first = False
        if sequence.finish == "error":
            await response.write(answering.error_event(sequence.error))
        else:
            await response.write(head.event(text.take(), _finish(sequence), False, pieces.take()))
            if ask.usage:
                await response.write(head.usage_event(_usage(sequence)))
            await response.write(answering.DONE)
        await response.write_eof()
        return response

    def _sequence(self, ask: Ask) -> Sequence:
        """Raises BadRequest for a prompt that is empty or does not fit."""
        field = "messages" if ask.chat else "prompt"
        prompt = self._tokens(ask)
        if max(prompt, default=0) >= self._vocabulary:
            raise BadRequest(
                field,
                f"found the token {request_parsing.format_value(max(prompt))}, expected ids below {self._vocabulary}",
            )
        if not prompt:
            prompt = sorted(self.tokenizer.ends)[:1]  # what a document begins after
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


class LogprobPieces:
    """The log-probabilities of an answer, sent with its pieces: each token once."""

    def __init__(self, tokenizer: ServedTokenizer, ask: Ask, sequence: Sequence) -> None:
        self._tokenizer, self._ask, self._sequence = tokenizer, ask, sequence
        self._sent_tokens = self._characters = 0

    def take(self) -> Logprobs | None:
        """Those of the tokens that were not sent yet; None where the request asks for none."""
        if not self._ask.logprobs:
            return None
        sequence, echo = self._sequence, self._ask.echo
        scored, new = len(sequence.chances), len(sequence.logprobs)
        new = min(new, len(sequence.likeliest) - scored)  # the engine adds to one after the other meanwhile
        ids = [*(sequence.prompt if echo else []), *sequence.tokens[:new]]
        chances: list[float | None] = [*([None, *sequence.chances] if echo else []), *sequence.logprobs[:new]]
        there = sequence.likeliest[0 if echo else scored : scored + new]
        best: list[list[tuple[int, float]] | None] = [*([None] if echo else []), *there]
        since, begin, word = self._sent_tokens, self._characters, self._tokenizer.token
        tokens = [word(id) for id in ids[since:]]
        likeliest = [
            None if ranking is None else [(word(id), chance) for id, chance in ranking] for ranking in best[since:]
        ]
        self._sent_tokens, self._characters = len(ids), begin + sum(map(len, tokens))
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
