"""The front and its workers: real processes, asked over HTTP as people's programs ask OpenAI."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.serving.front.front import TICK_SECONDS
from slipway.serving.records import ServedVersion, SwitchPolicy
from tests.conftest import until
from tests.serving.fronts import MODEL, Load, RunningFront, call, front, wish
from tests.serving.models import exported

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("durable")


@pytest.fixture(scope="module")
def first(durable: Path) -> ServedVersion:
    return exported(durable, 1)


@pytest.fixture(scope="module")
def running(durable: Path, first: ServedVersion) -> Iterator[RunningFront]:
    with front(durable) as started:
        assert started.outcome(started.wish(first)) == "all"
        yield started


def test_an_answer_names_the_version_that_gave_it(running: RunningFront, first: ServedVersion):
    status, answer, headers = running.ask(max_tokens=5)
    assert (status, answer["object"], answer["model"]) == (200, "text_completion", f"{MODEL}@1")
    assert answer["system_fingerprint"] == f"{MODEL}@1-{first.checkpoint[:12]}"
    assert headers["X-Slipway-Version"] == f"{MODEL}@1" and headers["X-Slipway-Checkpoint"] == first.checkpoint
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    assert answer["choices"][0]["finish_reason"] == "length"


def test_a_stream_has_the_same_text_as_the_whole_answer(running: RunningFront):
    _, complete, _ = running.ask(max_tokens=20)
    events = running.stream(prompt="def f(x):", max_tokens=20, stream_options={"include_usage": True})
    assert "".join(event["choices"][0]["text"] for event in events[:-1]) == complete["choices"][0]["text"]
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert events[-1]["usage"] == complete["usage"]


def test_a_chat_is_answered_as_its_messages_line_by_line(running: RunningFront):
    messages = [{"role": "user", "content": "hello"}]
    status, answer, _ = running.ask("/v1/chat/completions", messages=messages, max_tokens=6)
    _, plain, _ = running.ask(prompt="user: hello\nassistant:", max_tokens=6)
    assert status == 200 and answer["choices"][0]["message"]["role"] == "assistant"
    assert answer["choices"][0]["message"]["content"] == plain["choices"][0]["text"]
    streamed = running.stream("/v1/chat/completions", messages=messages, max_tokens=6)
    deltas = [event["choices"][0]["delta"] for event in streamed]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == plain["choices"][0]["text"]


def test_an_answer_ends_before_a_text_that_stops_it(running: RunningFront):
    _, complete, _ = running.ask(max_tokens=20)
    text = complete["choices"][0]["text"]
    stop = text[8:10]
    _, answer, _ = running.ask(max_tokens=20, stop=stop)
    assert answer["choices"][0] == {**answer["choices"][0], "text": text[: text.find(stop)], "finish_reason": "stop"}


def test_equal_seeds_draw_equal_answers(running: RunningFront):
    texts = {running.ask(temperature=1.0, seed=7, max_tokens=12)[1]["choices"][0]["text"] for _ in range(2)}
    other = running.ask(temperature=1.0, seed=8, max_tokens=12)[1]["choices"][0]["text"]
    assert len(texts) == 1 and other not in texts


@pytest.mark.parametrize(
    ("fields", "status", "names"),
    [
        ({"temperature": 3}, 400, "temperature"),
        ({"n": 2}, 400, "n: found 2"),
        ({"prompt": "x" * 200}, 400, "expected 128 together at most"),
        ({"prompt": [999]}, 400, "expected ids below 257"),
        ({"model": "another"}, 404, "expected one of: small, small@1"),
        ({"model": "x" * 100_000}, 404, "xxx...xxx"),
        ({"model": "small@2"}, 404, "found 'small@2', expected one of: small, small@1"),
    ],
)
def test_a_request_that_cannot_be_answered_is_told_why(
    running: RunningFront, fields: dict[str, Any], status: int, names: str
):
    actual, answer, _ = running.ask(**fields)
    assert actual == status and names in answer["error"]["message"]


def test_an_error_has_the_code_by_which_clients_know_it(running: RunningFront):
    assert running.ask(prompt="x" * 200)[1]["error"]["code"] == "context_length_exceeded"
    assert running.ask(model="another")[1]["error"]["code"] == "model_not_found"
    assert running.ask(model=f"{MODEL}@1")[1]["model"] == f"{MODEL}@1"
    for path, status in (("/v1/nothing", 404), ("/v1/completions", 405), ("/v1/models/another", 404)):
        actual, text = running.get(path)
        assert actual == status and json.loads(text)["error"]["type"] == "invalid_request_error"
    assert json.loads(running.get(f"/v1/models/{MODEL}")[1])["id"] == MODEL


@pytest.mark.parametrize("chat", [False, True])
def test_a_stream_tells_each_token_s_log_probability_once(running: RunningFront, chat: bool):
    fields: dict[str, Any] = {"max_tokens": 8, "stop": ["\x00\x00\x00"]}  # which holds pieces back
    if chat:
        path = "/v1/chat/completions"
        fields |= {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 3}
    else:
        path = "/v1/completions"
        fields |= {"prompt": "def f(x):", "logprobs": 3, "echo": True}
    complete = running.ask(path, **fields)[1]["choices"][0]["logprobs"]
    pieces = [
        logprobs
        for event in running.stream(path, **fields)
        if (logprobs := event["choices"][0]["logprobs"]) is not None
    ]
    joined = {name: [one for piece in pieces for one in piece[name]] for name in complete}
    if chat:
        assert [token["token"] for token in joined["content"]] == [token["token"] for token in complete["content"]]
        assert all(len(token["top_logprobs"]) == 3 for token in joined["content"])
        assert all(token["top_logprobs"][0]["logprob"] >= token["logprob"] for token in complete["content"])
    else:
        assert (joined["tokens"], joined["text_offset"]) == (complete["tokens"], complete["text_offset"])
        assert len(complete["tokens"]) == 17 and complete["text_offset"][:3] == [0, 1, 2]


def test_the_front_says_who_answers_and_what_it_has_counted(running: RunningFront):
    listed = json.loads(running.get("/v1/models")[1])["data"]
    assert [(model["id"], model["versions"]) for model in listed] == [(MODEL, [f"{MODEL}@1"])]
    assert running.get("/health") == (200, '{"problems": {}}')
    status, figures = running.get("/metrics")
    assert status == 200 and 'slipway_serving_share{model="small",version="1"} 1' in figures
    assert 'slipway_serving_first_token_seconds_bucket{model="small",version="1",le="+Inf"}' in figures
    status, page = running.get("/")
    assert status == 200 and "http" not in page.replace("http-equiv", "")


def test_who_answers_goes_on_while_the_records_cannot_be_listed(running: RunningFront, durable: Path):
    """The front looks for them several times in this while."""
    url = running.url
    folder, aside = durable / "serving", durable / "serving-aside"
    folder.rename(aside)
    try:
        folder.touch()
        end = time.monotonic() + 10 * TICK_SECONDS
        while time.monotonic() < end:
            document = {"model": MODEL, "prompt": "def f(x):", "max_tokens": 8}
            assert call(f"{url}/v1/completions", document)[0] == 200
    finally:
        folder.unlink()
        aside.rename(folder)


def test_a_switch_under_load_loses_no_request(running: RunningFront, durable: Path):
    second = exported(durable, 2)
    with Load(running) as load:
        until(lambda: len(load.versions) > 20, "the load")
        assert running.outcome(running.wish(second)) == "all"
        until(lambda: load.versions[-8:] == [f"{MODEL}@2"] * 8, "the second version to answer alone")
    assert load.failures == []
    back = running.wish(exported(durable, 3))
    assert running.outcome(back) == "all"


def test_a_canary_of_the_same_quality_gets_all_of_the_traffic(running: RunningFront, durable: Path):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    twin = ServedVersion("4", "4" * 64, settled.folder, settled.manifest)
    policy = SwitchPolicy(share=0.25, least_requests=10, latency_ratio=50)
    with Load(running) as load:
        assert running.outcome(running.wish(twin, policy)) == "all"
    verdict = running.records.state(MODEL).verdict
    assert load.failures == [] and verdict is not None
    assert verdict.figures["new_requests"] >= 10 and verdict.figures["compared_texts"] >= 8
    assert verdict.figures["bits_per_byte_worse"] == pytest.approx(0, abs=1e-4)


def test_a_canary_that_predicts_worse_goes_back_by_itself(running: RunningFront, durable: Path):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    policy = SwitchPolicy(share=0.5, least_requests=10_000, latency_ratio=50, quality_margin=-9.0)
    with Load(running) as load:
        assert running.outcome(running.wish(exported(durable, 5), policy)) == "back"
    verdict = running.records.state(MODEL).verdict
    assert load.failures == [] and verdict is not None and "predicts what people write worse" in verdict.why
    assert running.records.state(MODEL).settled == settled
    assert running.ask()[1]["model"] == settled.named(MODEL)


@pytest.mark.nightly
def test_a_canary_that_nobody_asks_waits_with_the_reason_until_somebody_does(running: RunningFront, durable: Path):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    twin = ServedVersion("8", "8" * 64, settled.folder, settled.manifest)
    # A canary with no answer when its patience is over goes back: it is longer than a slow machine's first answer.
    policy = SwitchPolicy(share=0.25, least_requests=10, patience_seconds=30.0, latency_ratio=50)
    number = running.wish(twin, policy)

    def note() -> str:
        return next(
            (share["note"] for share in running.shares() if share["version"] == f"{MODEL}@8" and share["ready"]), ""
        )

    assert until(note, "the canary to be on trial") == "on trial: no request has reached it yet"
    assert running.ask()[1]["model"] == settled.named(MODEL)  # it is not the canary's turn
    until(
        lambda: (answering := running.records.answering(MODEL)) and answering.shares[1].note == note(),
        "the note on record",
    )
    assert running.records.state(MODEL).verdict is None
    with Load(running) as load:
        assert running.outcome(number) == "all"
    verdict = running.records.state(MODEL).verdict
    assert load.failures == [] and verdict is not None and verdict.figures["new_requests"] >= 10


@pytest.mark.nightly
def test_a_canary_that_hangs_goes_back_and_its_clients_speak_against_it(running: RunningFront, durable: Path):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    [alone] = until(lambda: workers if len(workers := running.workers()) == 1 else [], "one worker")
    policy = SwitchPolicy(share=0.5, least_requests=10_000, patience_seconds=2.0)
    number = running.wish(exported(durable, 9), policy)
    until(lambda: sum(share["ready"] for share in running.shares()) == 2, "the canary to answer")
    [canary] = set(running.workers()) - {alone}
    os.kill(canary, signal.SIGSTOP)

    def over() -> bool:
        with contextlib.suppress(TimeoutError):
            call(f"{running.url}/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 1}, seconds=0.5)
        return running.records.state(MODEL).verdict is not None

    until(over, "the verdict")
    state = running.records.state(MODEL)
    assert state.number == number and state.verdict is not None and state.settled == settled
    assert state.verdict.outcome == "back" and "it has answered none of the" in state.verdict.why
    assert state.verdict.figures["new_given_up"] > 0 and state.verdict.figures["old_given_up"] == 0
    assert running.ask()[1]["model"] == settled.named(MODEL)
    until(lambda: running.workers() == [alone], "the hung worker to be killed", 120)


@pytest.mark.nightly
def test_a_client_that_leaves_its_stream_does_not_speak_against_the_version(running: RunningFront, durable: Path):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    policy = SwitchPolicy(share=0.5, least_requests=10, latency_ratio=50)
    number = running.wish(ServedVersion("10", "a" * 64, settled.folder, settled.manifest), policy)
    until(lambda: sum(share["ready"] for share in running.shares()) == 2, "the canary to answer")
    for _ in range(16):
        running.leave_stream(max_tokens=100)
    assert running.records.state(MODEL).verdict is None
    with Load(running) as load:
        assert running.outcome(number) == "all"
    verdict = running.records.state(MODEL).verdict
    assert load.failures == [] and verdict is not None and verdict.figures["new_failed"] == 0


def test_a_worker_that_dies_is_replaced_and_its_requests_are_answered(running: RunningFront):
    """The second time there is a pause before the next worker is started."""
    with Load(running, tokens=60) as load:
        for _ in range(2):
            _kill_the_worker(running, load)
        before = len(load.versions)
        until(lambda: len(load.versions) > before + 8, "answers of the last worker")
    assert load.failures == []


def _kill_the_worker(running: RunningFront, load: Load) -> None:
    """Once it has answered some requests; returns when there is another."""
    [worker] = until(lambda: workers if len(workers := running.workers()) == 1 else [], "one worker")
    before = len(load.versions)
    until(lambda: len(load.versions) > before + 8, "answers of this worker")
    os.kill(worker, signal.SIGKILL)
    until(lambda: running.workers() not in ([worker], []), "another worker")


@pytest.mark.parametrize("fault", ["a flipped bit", "no tokenizer"])
def test_a_model_that_must_not_be_served_is_refused_before_traffic(running: RunningFront, durable: Path, fault: str):
    settled = running.records.state(MODEL).settled
    assert settled is not None
    if fault == "no tokenizer":
        bad = exported(durable, 6, without="tokenizer.json")
    else:
        bad = exported(durable, 7)
        weights = durable / bad.folder / "model.safetensors"
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 4
        weights.write_bytes(content)
    assert running.outcome(running.wish(bad)) == "back"
    verdict = running.records.state(MODEL).verdict
    assert verdict is not None
    assert ("found no tokenizer.json" if fault == "no tokenizer" else "found BLAKE3") in verdict.why
    assert running.ask()[1]["model"] == settled.named(MODEL)


def test_a_front_that_is_killed_in_a_switch_comes_back_with_the_right_versions(tmp_path: Path):
    first, second = exported(tmp_path, 1), exported(tmp_path, 2)
    canary = SwitchPolicy(share=0.25, least_requests=8, latency_ratio=50, quality_margin=9.0)
    with front(tmp_path) as killed:
        assert killed.outcome(killed.wish(first)) == "all"
        number = killed.wish(second, canary)
        until(lambda: len(json.loads(killed.get("/serving")[1])[MODEL]["shares"]) == 2, "the switch to begin")
        killed.kill()
    with front(tmp_path) as again:
        until(lambda: again.ask()[0] == 200, "an answer")
        state = again.records.state(MODEL)
        assert (state.number, state.settled, state.coming) == (number, first, second)
        with Load(again) as load:
            assert again.outcome(number) == "all"
        assert set(load.versions) == {f"{MODEL}@1", f"{MODEL}@2"} and load.failures == []
        wish(again.records, None)
        until(lambda: again.ask()[0] == 404, "the model to be stopped")


def test_each_token_of_a_prompt_is_reported_beside_the_likeliest_one(running: RunningFront):
    _, answer, _ = running.ask(prompt="def f(x):", max_tokens=2, echo=True, logprobs=1)
    logprobs = answer["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == 11 and logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    for index in range(1, 11):
        best = max(logprobs["top_logprobs"][index].values())
        assert logprobs["token_logprobs"][index] <= best and (index < 9 or logprobs["token_logprobs"][index] == best)
    _, without, _ = running.ask(prompt="def f(x):", max_tokens=2, logprobs=1)
    assert without["choices"][0]["logprobs"]["top_logprobs"] == logprobs["top_logprobs"][9:]
