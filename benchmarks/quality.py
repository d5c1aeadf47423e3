"""What cleaning finds of what it should find, and what it takes for such wrongly: recall and precision on fixed cases.

``python -m benchmarks.quality [--peers-path FOLDER]``: masks of personal data on 228 texts (benchmarks/cases),
languages on the first article of the Declaration of Human Rights and its halves, near-duplicates on pairs of a known
similarity, and decontamination on items of benchmarks that are planted whole, in part, with a word changed, and in
many documents; and how often the rules decide as datatrove's (`benchmarks.agreement`). All cases are drawn from fixed
seeds. The rules were written beside them, so the figures say what is covered, not what an unseen corpus gives. FOLDER
has the package `detect_secrets`, which looks for the secrets of the same texts, a file each.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks import agreement
from benchmarks.cases.personal import Case, cases
from slipway.assets.datasets.cleaning import minhash, near_duplicates, pii, word_hashes
from slipway.assets.datasets.cleaning.decontamination import contaminated
from slipway.assets.datasets.cleaning.items import ItemSearch
from slipway.assets.datasets.cleaning.language import language_of
from slipway.recipes.cleaning import DecontaminationSection

VOCABULARY = [f"w{number}" for number in range(5000)]
SEED = 17


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality")
    parser.add_argument("--peers-path", type=Path, help="a folder with the package detect_secrets")
    options = parser.parse_args()
    _personal(options.peers_path)
    _languages()
    for similarity in (0.5, 0.8):
        _near_duplicates(similarity)
    _decontamination()
    for rule, share in agreement.shares():
        _print(f"agreement with datatrove 0.10.1, {rule}", "share", "higher", share, {}, 0.995)


def _personal(peers: Path | None) -> None:
    """Recall and precision of each kind; of detect-secrets those of secrets, in the lines that it reports."""
    drawn = list(cases(SEED))
    planted, hit, false = Counter[str](), Counter[str](), Counter[str]()
    for case in drawn:
        masked, counts = pii.mask(case.text, pii.PLACEHOLDERS)
        false.update(counts)
        for kind, value in case.planted:
            hit_value = value not in masked and counts.get(kind, 0) > 0
            planted[kind] += 1
            hit[kind] += hit_value
            false[kind] -= hit_value
    library_scores = _detect_secrets(drawn, peers) if peers else {}
    for kind, count in planted.items():
        beside = library_scores if kind == "secret" else {}
        _recall_and_precision(f"masks, {kind}, {len(drawn)} texts", hit[kind], count, max(false[kind], 0), beside)
    text = "\n".join(case.text for case in drawn) * 20
    begun = time.process_time()
    pii.mask(text, pii.PLACEHOLDERS)
    rate = len(text) / 1e6 / (time.process_time() - begun)
    speed = {"detect-secrets, secrets alone": library_scores["rate"]} if library_scores else {}
    _print("masks, all kinds, all texts in one, where each line has something", "MB/CPU-s", "higher", rate, speed)


def _detect_secrets(drawn: list[Case], folder: Path) -> dict[str, float]:
    """What the library finds in a file of each text."""
    sys.path.append(str(folder))
    from detect_secrets.core.scan import scan_file  # type: ignore[import-not-found]
    from detect_secrets.settings import default_settings  # type: ignore[import-not-found]

    planted = hit = false = size = 0
    with default_settings(), tempfile.TemporaryDirectory() as scratch:
        begun = time.process_time()
        for number, case in enumerate(drawn):
            file = Path(scratch) / f"{number}.txt"
            file.write_text(case.text)
            size += len(case.text)
            secrets_reported = {str(secret.secret_value) for secret in scan_file(str(file))}
            secrets = [value for kind, value in case.planted if kind == "secret"]
            hits = sum(
                any(value in reported_secret or reported_secret in value for reported_secret in secrets_reported)
                for value in secrets
            )
            planted, hit = planted + len(secrets), hit + hits
            false += sum(
                not any(value in reported_secret or reported_secret in value for value in secrets)
                for reported_secret in secrets_reported
            )
        rate = size / 1e6 / (time.process_time() - begun)
    return {"recall": hit / planted, "precision": hit / max(hit + false, 1), "rate": rate}


def _languages() -> None:
    """The article in each language: the whole, and each half of it."""
    articles = json.loads((Path(__file__).parent / "cases" / "languages.json").read_text())
    for name, parts in (("an article", 1), ("half an article", 2)):
        counts = Counter[str]()
        for language, text in articles.items():
            length = len(text) // parts
            for part in range(parts):
                language_guess = language_of("a.txt", text[part * length : (part + 1) * length])[:2]
                counts["right" if language_guess == language else "unknown" if language_guess == "un" else "wrong"] += 1
        of = f"languages, {name} in each of {len(articles)}"
        _recall_and_precision(of, counts["right"], counts.total(), counts["wrong"], {})


def _near_duplicates(similarity: float) -> None:
    """400 pairs 0.1 above the similarity asked for, and 400 that are 0.1 below it."""
    draw = random.Random(SEED)
    pairs = [(side, *_similar(draw, similarity + side)) for side in (0.1, -0.1) for _ in range(400)]
    rows = [text for _, *both in pairs for text in both]
    signatures = [minhash.signature(text) for text in rows]
    relation = pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "bands": pa.array(
                [minhash.bands(signature, similarity) for signature in signatures], pa.list_(pa.uint64())
            ),
            "signature": pa.array(
                [signature.tobytes() for signature in signatures], pa.binary(4 * minhash.PERMUTATIONS)
            ),
        }
    )
    with duckdb.connect() as connection, tempfile.TemporaryDirectory() as folder:
        connection.register("features", relation)
        duplicates = near_duplicates.duplicates(connection, "features", similarity, Path(folder))
        duplicate_rows = set(duplicates["row"].to_pylist())
    hits = {
        side: sum(2 * at + 1 in duplicate_rows for at, pair in enumerate(pairs) if pair[0] == side)
        for side in (0.1, -0.1)
    }
    of = f"near-duplicates, similarity {similarity}, pairs 0.1 above and below"
    _recall_and_precision(of, hits[0.1], 400, hits[-0.1], {})


def _similar(draw: random.Random, similarity: float, shingles: int = 400) -> tuple[str, str]:
    """Two texts whose sets of word 5-grams have this Jaccard similarity."""
    shared = round(2 * shingles * similarity / (1 + similarity))
    both = draw.choices(VOCABULARY, k=shared + minhash.SHINGLE - 1)
    own, others = (draw.choices(VOCABULARY, k=shingles - shared) for _ in range(2))
    return " ".join(own + both), " ".join(both + others)


def _decontamination() -> None:
    """200 items of each kind, planted in a document each, and as many documents without one."""
    for name, plant in _plants().items():
        draw = random.Random(SEED)
        items, texts = [], []
        for _ in range(200):
            item, written = plant(draw)
            items.append(" ".join(item))
            texts.append(" ".join([*draw.choices(VOCABULARY, k=80), *written, *draw.choices(VOCABULARY, k=80)]))
        clean = [" ".join(draw.choices(VOCABULARY, k=170)) for _ in texts]
        rows = _contaminated_rows(items, [*texts, *clean])
        hits, false = (len([row for row in rows if begin <= row < begin + 200]) for begin in (0, 200))
        _recall_and_precision(f"decontamination, {name}", hits, 200, false, {})


def _plants() -> dict[str, Callable[[random.Random], tuple[list[str], list[str]]]]:
    def unchanged(count: int) -> Callable[[random.Random], tuple[list[str], list[str]]]:
        return lambda draw: (item := draw.choices(VOCABULARY, k=count), item)

    def changed(count: int) -> Callable[[random.Random], tuple[list[str], list[str]]]:
        def plant(draw: random.Random) -> tuple[list[str], list[str]]:
            item, position = draw.choices(VOCABULARY, k=count), draw.randrange(count)
            return item, [*item[:position], "another", *item[position + 1 :]]

        return plant

    def part(draw: random.Random) -> tuple[list[str], list[str]]:
        item = draw.choices(VOCABULARY, k=60)
        return item, item[20:35]

    question = random.Random(3).choices(VOCABULARY, k=9)
    return {
        "items of 8 words": unchanged(8),
        "items of 12 words": unchanged(12),
        "items of 40 words": unchanged(40),
        "items of 12 words, one changed": changed(12),
        "items of 20 words, one changed": changed(20),
        "items of 50 words, one changed": changed(50),
        "15 of 60 words": part,
        "one item of 9 words in 200 documents": lambda draw: (question, question),
    }


def _contaminated_rows(items: list[str], texts: list[str]) -> set[int]:
    """The rows of the texts that decontamination leaves out, as a dataset's build does it."""
    rule = DecontaminationSection()
    search = ItemSearch(items, rule.shortest)
    rows = {row for row, text in enumerate(texts) if search.first_in(text) is not None}
    with duckdb.connect() as connection:
        for name, among in (("training", texts), ("held_out", items)):
            prints = pa.array([word_hashes.fingerprints(text) for text in among], pa.list_(pa.uint64()))
            connection.register(
                name, pa.table({"row": pa.array(range(len(among)), pa.int64()), "fingerprints": prints})
            )
        get = (texts.__getitem__, items.__getitem__)
        return rows | {leak.row for leak in contaminated(connection, "training", "held_out", *get, rule)}


def _recall_and_precision(metric: str, hits: int, of: int, false: int, library_scores: dict[str, float]) -> None:
    for what, value in (("recall", hits / of), ("precision", hits / max(hits + false, 1))):
        peers = {"detect-secrets": library_scores[what]} if library_scores else {}
        _print(f"{metric}: {what}", "share", "higher", value, peers, 0.95)


def _print(
    metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float | None = None
) -> None:
    line: dict[str, Any] = {"benchmark": "quality", "metric": metric, "unit": unit, "better": better}
    print(json.dumps({**line, "ours": value, "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
