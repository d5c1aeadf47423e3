"""Serving: tokens per second and time to first token at 1, 4, 16 clients, and requests lost in a switch under load.

``python -m benchmarks.serving [--clients 1 4 16] [--tokens 64] [--rounds 2] [--processor] [--llama PYTHON]`` prints one
JSON line a metric. Ours and plain `transformers.generate` serve the same weights behind the same HTTP interface, one
after the other, in turns; with `--llama` llama.cpp's own server does, too: PYTHON is the interpreter of an environment
with `xllamacpp` and `gguf`. `--processor` measures seconds of a processor on one thread: of our engine and of
`generate` alone, and of llama.cpp with its server. `--lost` only counts the requests that switches lose.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from slipway.serving.records import ServedVersion
from slipway.trainer.models.decoder import DecoderShape
from tests.serving.fronts import MODEL, Load, front
from tests.serving.models import exported

SHAPE = DecoderShape(layers=8, width=512, heads=8, kv_heads=4, hidden=1408)
LENGTH = 512
THREADS = len(os.sched_getaffinity(0))
PROMPT = "def main(arguments: list[str]) -> int:"
BUSY_SECONDS = 10.0
"""How long the load of a switch goes on before it and after it, together."""
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Measured:
    """What some clients saw together."""

    tokens_per_second: float
    first_seconds: float
    """The median over all requests."""
    tokens: int


def main() -> None:
    """Print the metrics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processor", action="store_true", help="seconds of a processor a token, without a server")
    parser.add_argument("--llama", metavar="PYTHON", default="", help="an interpreter that has llama.cpp")
    parser.add_argument("--lost", action="store_true", help="the requests that switches lose, and no speeds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        durable = Path(folder)
        for line in lines(options, durable):
            print(json.dumps({"benchmark": "serving", **line}), flush=True)


def lines(options: argparse.Namespace, durable: Path) -> Iterator[dict[str, object]]:
    """The metrics that are asked for."""
    if options.processor:
        yield from processor_seconds(options.clients, options.tokens, options.llama)
        return
    if not options.lost:
        version = exported(durable, 1, shape=SHAPE, length=LENGTH)
        results = speeds(durable, version, options.clients, options.tokens, options.rounds, options.llama)
        yield from _speed_lines(results)
    yield from lost(durable)


Speeds = dict[str, dict[int, list[Measured]]]
"""By server and by clients, a measurement a round."""


def speeds(durable: Path, version: ServedVersion, clients: list[int], tokens: int, rounds: int, llama: str) -> Speeds:
    """Each server in turn, so that what else the machine does meets all of them."""
    folder = durable / version.folder
    with contextlib.ExitStack() as running:
        server = running.enter_context(front(durable, threads=THREADS))
        assert server.outcome(server.wish(version)) == "all"
        urls = {"ours": server.url}
        urls["transformers"] = running.enter_context(peer(_transformers(folder, version.manifest)))[1]
        if llama:
            urls["llama.cpp"] = running.enter_context(peer(_llama(llama, folder, THREADS)))[1]
        for url in urls.values():
            asyncio.run(ask(url, 1, 8))
        results: Speeds = {name: {} for name in urls}
        for _ in range(rounds):
            for number in clients:
                for name, measured in results.items():
                    measured.setdefault(number, []).append(asyncio.run(ask(urls[name], number, tokens)))
    return results


@contextlib.contextmanager
def peer(command: list[str]) -> Iterator[tuple[int, str]]:
    """A peer's server while it runs: its pid and its URL."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, next(json.loads(line)["url"] for line in process.stdout if line.startswith("{"))
        finally:
            process.kill()


async def ask(url: str, clients: int, tokens: int) -> Measured:
    """All clients ask once, at the same moment."""
    firsts: list[float] = []

    async def one(session: aiohttp.ClientSession, client: int) -> int:
        body = {"model": MODEL, "prompt": f"{PROMPT} # {client}", "max_tokens": tokens, "temperature": 0}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        began, used, begun = time.perf_counter(), 0, False
        async with session.post(f"{url}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                if line.startswith(b"data: {"):
                    chunk = json.loads(line[6:])
                    if chunk["choices"] and not begun:
                        begun = True
                        firsts.append(time.perf_counter() - began)
                    used = (chunk.get("usage") or {}).get("completion_tokens", used)
        return used

    timeout = aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter()
        used = await asyncio.gather(*(one(session, client) for client in range(clients)))
        seconds = time.perf_counter() - began
    return Measured(sum(used) / seconds, statistics.median(firsts), sum(used))


def processor_seconds(clients: list[int], tokens: int, llama: str) -> Iterator[dict[str, object]]:
    """What a token costs the processor on one thread: on a machine with other work, time says little and this much."""
    import threading

    import torch
    import transformers

    from slipway.serving.engine import weights
    from slipway.serving.engine.batching import AnswerEngine, Sequence
    from slipway.serving.engine.network import Cache, InferenceDecoder
    from slipway.serving.engine.sampling_settings import Sampling

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / exported(Path(folder), 1, shape=SHAPE, length=LENGTH).folder
        reference = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        read = weights.read(model, torch.float32, torch.device("cpu"))
    prompt, engine = list(PROMPT.encode()), InferenceDecoder(read, Cache.of(read, 16, LENGTH))

    def generate(new: int) -> float:
        input_ids, began = torch.tensor([prompt]), time.process_time()
        settings = {"max_new_tokens": new, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        reference.generate(input_ids, attention_mask=torch.ones_like(input_ids), **settings)
        return time.process_time() - began

    def answer(number: int, new: int) -> float:
        sequences, over = [Sequence(prompt, new, Sampling(0.0)) for _ in range(number)], threading.Event()
        runs = AnswerEngine(engine, lambda _: over.set() if all(sequence.finish for sequence in sequences) else None)
        for sequence in sequences:
            runs.submit(sequence)
        began = time.process_time()
        runs.start()
        over.wait()
        seconds = time.process_time() - began
        runs.stop()
        return seconds

    generate(2), answer(2, 2)
    theirs_alone = generate(tokens) / tokens
    with contextlib.ExitStack() as running:
        if llama:
            folder = running.enter_context(tempfile.TemporaryDirectory())
            model = Path(folder) / exported(Path(folder), 1, shape=SHAPE, length=LENGTH).folder
            pid, url = running.enter_context(peer(_llama(llama, model, 1)))
            asyncio.run(ask(url, 1, 8))
        for number in clients:
            peers = {"transformers": theirs_alone}
            if llama:
                before, used = _processor_of(pid), asyncio.run(ask(url, number, tokens)).tokens
                peers["llama.cpp"] = (_processor_of(pid) - before) / used
            value = answer(number, tokens) / (number * tokens)
            metric = f"processor a token, {number} clients, engine alone"
            yield _line(metric, "s", round(value, 6), _rounded(peers), round(theirs_alone / 2, 6), "lower")


def lost(durable: Path) -> Iterator[dict[str, object]]:
    """Two switches at once and one canary under load."""
    first, second = (exported(durable, number) for number in (11, 12))
    with front(durable) as running:
        assert running.outcome(running.wish(first)) == "all"
        with Load(running, clients=8) as load:
            for version in (second, first, second):
                time.sleep(BUSY_SECONDS / 4)
                assert running.outcome(running.wish(version)) == "all"
            time.sleep(BUSY_SECONDS / 4)
    answered = len(load.versions)
    yield _line(f"lost in 3 switches, of {answered} requests", "requests", len(load.failures), {}, 0, "lower")


def _transformers(folder: Path, manifest: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.peers.transformers_engine", str(folder), MODEL, manifest]


def _llama(python: str, folder: Path, threads: int) -> list[str]:
    return [python, str(ROOT / "benchmarks/peers/llama_cpp_server.py"), str(folder), MODEL, str(threads)]


def _processor_of(pid: int) -> float:
    """Seconds of a processor that a process has used (proc_pid_stat(5): utime, stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _speed_lines(results: Speeds) -> Iterator[dict[str, object]]:
    for number, rounds in results["ours"].items():
        peers = {name: by_clients[number] for name, by_clients in results.items() if name != "ours"}
        peer_speeds = {name: _best(rounds_of_peer).tokens_per_second for name, rounds_of_peer in peers.items()}
        aim = 2 * peer_speeds["transformers"]
        speed = _best(rounds).tokens_per_second
        yield _line(
            f"tokens, {number} clients", "tokens/s", round(speed, 1), _rounded(peer_speeds), round(aim, 1), "higher"
        )
        firsts = {name: min(one.first_seconds for one in rounds_of_peer) for name, rounds_of_peer in peers.items()}
        first = min(one.first_seconds for one in rounds)
        yield _line(f"first token, {number} clients", "s", round(first, 4), _rounded(firsts), None, "lower")


def _best(measured: list[Measured]) -> Measured:
    """The round that other work disturbed least."""
    return max(measured, key=lambda round_result: round_result.tokens_per_second)


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _line(
    metric: str, unit: str, value: float, peers: dict[str, float], aim: float | None, better: str
) -> dict[str, object]:
    return {"metric": metric, "unit": unit, "better": better, "ours": value, "peers": peers, "aim": aim}


if __name__ == "__main__":
    main()
