"""The work of a dataset build by other libraries: read, normalise, quality rules, masks, exact duplicates, tokens.

``PYTHON benchmarks/peers/data.py NAME CORPUS TOKENIZER FOLDER WORKERS``: NAME is `datasets.map` or `datatrove`; prints
`{cpu, wall, documents, tokens}`. Each does what it has an idiom for, with thresholds that few documents break, and less
than Slipway does: neither decontaminates or masks secrets, and datatrove does not look for duplicates. Of a
page (`.html`) both take the main content, by the library that Slipway takes for it (resiliparse).
"""

import json
import os
import re
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

Build = Callable[[], tuple[int, int]]
"""Does the work; gives how many documents and tokens there are."""
END = "<|endofdocument|>"
EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}\b")
IP = re.compile(r"\b(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)\b")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
WORD = re.compile(r"\w+")
STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
ENDS = (".", "!", "?", '"', "'")


def main(name: str, corpus: Path, tokenizer: Path, folder: Path, workers: int) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    os.environ["HF_HUB_OFFLINE"] = "1"
    folder.mkdir(parents=True)
    build = {"datasets.map": _datasets, "datatrove": _datatrove}[name]
    run = build(corpus, tokenizer, folder, workers)
    begun, used = time.perf_counter(), _cpu()
    documents, tokens = run()
    figures = {"cpu": _cpu() - used, "wall": time.perf_counter() - begun, "documents": documents, "tokens": tokens}
    print(json.dumps(figures))


def _cpu() -> float:
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def _datasets(corpus: Path, tokenizer: Path, folder: Path, workers: int) -> Build:
    """Hugging Face `datasets`: a map that cleans, a filter for duplicates, a map that tokenises, a file of tokens."""
    import datasets  # type: ignore[import-not-found]
    import tokenizers

    datasets.disable_progress_bars()
    content = _content_of(corpus)
    encoder = tokenizers.Tokenizer.from_file(str(tokenizer))
    end = encoder.token_to_id(END)

    def cleaned(batch: dict[str, list[str]]) -> dict[str, list[str]]:
        texts = [_normalized(text) for text in map(content, batch["text"])]
        texts_that_pass = [text for text in texts if _passes(text)]
        return {"text": [IP.sub("<IP_ADDRESS>", EMAIL.sub("<EMAIL>", text)) for text in texts_that_pass]}

    def encoded(batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        return {"tokens": [[*encoding.ids, end] for encoding in encoder.encode_batch(batch["text"])]}

    texts_so_far: set[str] = set()

    def is_new(text: str) -> bool:
        count = len(texts_so_far)
        texts_so_far.add(text)
        return len(texts_so_far) > count

    def run() -> tuple[int, int]:
        files = [str(path) for path in sorted(corpus.rglob("*")) if path.is_file()]
        loaded = datasets.load_dataset(
            "text", data_files=files, sample_by="document", split="train", encoding_errors="replace"
        )
        texts = loaded.map(cleaned, batched=True, batch_size=64, num_proc=workers)
        texts = texts.filter(is_new, input_columns="text")
        tokenised = texts.map(encoded, batched=True, batch_size=64, num_proc=workers, remove_columns=["text"])
        tokens = 0
        with (folder / "tokens").open("wb") as file:
            for batch in tokenised.with_format("arrow").iter(64):
                values = batch["tokens"].combine_chunks().flatten().to_numpy().astype(np.uint16)
                file.write(values.tobytes())
                tokens += len(values)
        return len(tokenised), tokens

    return run


def _datatrove(corpus: Path, tokenizer: Path, folder: Path, workers: int) -> Build:
    """datatrove: its own filters, formatter and tokenisation, one pipeline in as many processes."""
    import datatrove.pipeline.filters as filters
    from datatrove.data import Document
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.pipeline.tokens import DocumentTokenizer

    content = _content_of(corpus)

    def read(data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        files = [path for path in sorted(corpus.rglob("*")) if path.is_file()][rank::world_size]
        for path in files:
            yield Document(_normalized(content(path.read_text(errors="replace"))), str(path.relative_to(corpus)))

    quality = filters.GopherQualityFilter(5, 1_000_000, 1, 40, 5.0, 0.95, 0.5, 0.1, 1)
    repetition = filters.GopherRepetitionFilter(0.9, 0.9, 0.95, 0.95, ((2, 0.6),), ((5, 0.95),))
    fineweb = filters.FineWebQualityFilter(
        line_punct_thr=0.0, short_line_thr=1.0, char_duplicates_ratio=1.0, new_line_ratio=10.0
    )
    tokens = DocumentTokenizer(str(folder / "tokens"), str(tokenizer), eos_token=END, shuffle_documents=False)
    pipeline = [read, quality, repetition, fineweb, PIIFormatter(), tokens]
    logs = str(folder / "logs")
    # Forked processes are children of this one, so that their CPU time is counted.
    executor = LocalPipelineExecutor(pipeline, workers, workers, logs, start_method="fork")

    def run() -> tuple[int, int]:
        tokens = next(stat.stats["tokens"] for stat in executor.run().stats if "tokens" in stat.stats)
        return int(tokens.n), int(tokens.total)

    return run


def _content_of(corpus: Path) -> Callable[[str], str]:
    """What gives the text of a file of the corpus: of pages the main content."""
    if next(corpus.rglob("*.html"), None) is None:
        return str
    from resiliparse.extract.html2text import extract_plain_text

    return lambda page: str(
        extract_plain_text(page, main_content=True, alt_texts=False) or extract_plain_text(page, alt_texts=False)
    )


def _normalized(text: str) -> str:
    return unicodedata.normalize("NFC", CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def _passes(text: str) -> bool:
    """The rules of Slipway's that the benchmark asks, as one writes them in Python."""
    tokens, words_of_text = text.split(), WORD.findall(text.lower())
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    letters = sum(map(len, words_of_text))
    if len(tokens) < 5 or len(tokens) > 1_000_000 or not words_of_text:
        return False
    mean = sum(map(len, tokens)) / len(tokens)
    pairs = Counter(pairwise(words_of_text))
    (pair, often), *_ = pairs.most_common(1) or [(("", ""), 0)]
    return (
        text.count("{") <= 100_000
        and text.lower().count("lorem ipsum") <= 100
        and max(text.count("#"), text.count("...") + text.count("…")) <= 5 * len(tokens)
        and 2 <= mean <= 40
        and sum(any(map(str.isalpha, token)) for token in tokens) >= 0.1 * len(tokens)
        and sum(line.startswith(("-", "*", "•")) for line in lines) <= 0.95 * len(lines)
        and sum(line.endswith(("...", "…")) for line in lines) <= 0.5 * len(lines)
        and sum(line.endswith(ENDS) for line in lines) >= 0
        and sum(len(line) <= 30 for line in lines) <= len(lines)
        and len(lines) - len(set(lines)) <= 0.9 * len(lines)
        and len(paragraphs) - len(set(paragraphs)) <= 0.9 * len(paragraphs)
        and bool(STOP_WORDS & set(words_of_text))
        and (often < 2 or often * sum(map(len, pair)) <= 0.6 * letters)
        and _duplicated(words_of_text) <= 0.95 * letters
    )


def _duplicated(words_of_text: list[str]) -> int:
    """Characters of the words in runs of five that occur more than once."""
    runs = list(zip(*(words_of_text[start:] for start in range(5)), strict=False))
    counts = Counter(runs)
    covered = {position + step for position, run in enumerate(runs) if counts[run] > 1 for step in range(5)}
    return sum(len(words_of_text[position]) for position in covered)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
