"""The demo's last stage: each champion answers a first prompt through the serving front."""

import time
from collections.abc import Collection

from rich.console import Console

from slipway.assets.serving import Serving, champion_of
from slipway.deploy.embedded.pipeline_state import Chain
from slipway.resources.home import Home
from slipway.resources.mlflow.registry import Version
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.serving import local
from slipway.serving import client
from slipway.serving.records import ServingRecords, SwitchPolicy

BY = "the demo"
PROMPT = "def main("
TOKENS = 40
READY_SECONDS = 180.0
END_SECONDS = 60.0


def show(console: Console, can_answer: Collection[str], chains: list[Chain], home: Home, keep: bool) -> str | None:
    """Serve each champion that can answer, and print its answer. Returns why one does not answer, or None.
    Serving ends afterwards, unless `keep`.
    """
    resources = embedded_resources(home)
    serving = Serving(resources["tiers"], resources["compute"], lambda line: None)  # type: ignore[arg-type]
    models = {chain.model: _longest(chain) for chain in chains if chain.model in can_answer}
    try:
        for model, longest in models.items():
            champion = champion_of(serving.tiers, model)
            problem = "it has no champion" if champion is None else _answer(console, serving, champion, longest)
            if problem:
                return f"model {model} does not answer: {problem}"
    finally:
        if not keep:
            _stop(serving, list(models))
    for model in models:
        command = f"slipway models ask {model} '{PROMPT}'"
        console.print(f"ask it: {'' if keep else f'slipway models serve {model}, then '}{command}", soft_wrap=True)
    return None


def _longest(chain: Chain) -> int:
    """The maximum number of tokens of an answer: at most half of the length of a training sample."""
    if chain.training is None:
        return TOKENS
    batch = chain.training.specification().identity_config["batch"]
    assert isinstance(batch, dict)
    return min(TOKENS, int(batch["length"]) // 2)


def _answer(console: Console, serving: Serving, champion: Version, longest: int) -> str:
    """Why the champion does not answer; "" if it does."""
    model = champion.model
    state = serving.serve(champion, SwitchPolicy(), True, BY, "it is the champion")
    state = serving.settle(state, READY_SECONDS)
    if state.verdict is None or state.verdict.outcome == "back":
        return state.verdict.why if state.verdict else f"it was not ready within {READY_SECONDS:.0f} s"
    front = serving.records.front()
    assert front is not None
    began = time.monotonic()
    request = {"model": model, "prompt": PROMPT, "max_tokens": longest, "temperature": 0.8, "seed": 1}
    try:
        answer = client.complete(front.url, request)
    except client.NotAnswered as error:
        return str(error)
    seconds = time.monotonic() - began
    tokens = answer["usage"]["completion_tokens"]
    console.print(f"{answer['model']} answers at {front.url}/v1/completions ({tokens} tokens in {seconds:.2f} s):")
    text = f"{PROMPT}{answer['choices'][0]['text']}"
    console.print("\n".join(f"  | {line}" for line in text.splitlines()), markup=False, soft_wrap=True)
    return ""


def _stop(serving: Serving, models: list[str]) -> None:
    """Stop what the demo serves, and wait for the server to end."""
    for model in models:
        serving.stop(model, BY, "the demo has ended")
    _await_end(serving.records)


def _await_end(records: ServingRecords) -> None:
    deadline = time.monotonic() + END_SECONDS
    while local.runs(records) and time.monotonic() < deadline:
        time.sleep(0.1)
