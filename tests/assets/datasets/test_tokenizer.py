"""The tokenizer: trained by one library, applied by another, with the same ids."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.assets.datasets.texts import tokenizer
from slipway.trainer.data import vocabulary

TEXTS = [path.read_text() for path in sorted(Path(tokenizer.__file__).parent.glob("*.py"))]


@pytest.fixture(scope="module")
def trained() -> bytes:
    return tokenizer.train(TEXTS, 700)


@pytest.fixture(scope="module")
def library(trained) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained.decode())


@pytest.fixture(scope="module")
def encoding(trained):
    return tokenizer.encoding(trained)


def test_both_libraries_give_the_same_ids_for_real_files(library, encoding):
    every = [path.read_text() for path in sorted(Path(subprocess.__file__).parent.glob("*.py"))[:100]]
    assert encoding.encode_ordinary_batch(every) == [encoded.ids for encoded in library.encode_batch(every)]


@settings(deadline=None, max_examples=300)
@given(text=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<")))
def test_both_libraries_give_the_same_ids_for_any_text(library, encoding, text):
    assert encoding.encode_ordinary(text) == library.encode(text).ids


@settings(deadline=None)
@given(text=st.text(alphabet=st.characters(codec="utf-8")))
def test_any_text_is_decoded_from_its_tokens(encoding, text):
    assert encoding.decode(encoding.encode_ordinary(text)) == text


def test_the_end_of_document_has_the_last_id(trained, library, encoding):
    described = tokenizer.describe(trained)
    assert (described.vocab_size, described.end_of_document) == (700, 699)
    assert library.token_to_id(vocabulary.END_OF_DOCUMENT) == encoding.n_vocab - 1 == 699


def test_a_text_that_spells_the_end_of_document_stays_text(encoding):
    ids = encoding.encode_ordinary(vocabulary.END_OF_DOCUMENT)
    assert len(ids) > 1
    assert encoding.decode(ids) == vocabulary.END_OF_DOCUMENT


def test_training_does_not_depend_on_the_order_of_the_texts_or_the_process(trained, tmp_path):
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert tokenizer.train(shuffled, 700) == trained
    script = (
        "import sys; from tests.assets.datasets.test_tokenizer import TEXTS, tokenizer; "
        "sys.stdout.buffer.write(tokenizer.train(TEXTS, 700))"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=True, capture_output=True).stdout == trained


def test_a_small_corpus_gives_fewer_tokens_than_the_recipe_allows():
    described = tokenizer.describe(tokenizer.train(["abab"], 5000))
    assert 257 < described.vocab_size < 270
    assert described.end_of_document == described.vocab_size - 1


def test_a_vocabulary_without_room_for_all_bytes_is_refused():
    with pytest.raises(ValueError, match=r"tokenizer\.vocab_size: found 256, expected at least 257"):
        tokenizer.train(TEXTS, 256)


def test_a_stored_tokenizer_is_loaded_by_its_name(trained, tmp_path, encoding):
    stored = tokenizer.write(tmp_path, trained)
    assert tokenizer.load(tmp_path, stored.sha256).encode_ordinary(TEXTS[0]) == encoding.encode_ordinary(TEXTS[0])


def test_a_damaged_tokenizer_is_refused_and_repaired_by_writing_it_again(trained, tmp_path):
    stored = tokenizer.write(tmp_path, trained)
    tokenizer.path(tmp_path, stored.sha256).write_bytes(trained[:-1])
    with pytest.raises(ValueError, match="damaged: its SHA-256 is"):
        tokenizer.load(tmp_path, stored.sha256)
    tokenizer.write(tmp_path, trained)
    assert tokenizer.read(tmp_path, stored.sha256) == trained


def test_a_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(ValueError, match="found no tokenizer there"):
        tokenizer.load(tmp_path, "0" * 64)


@pytest.mark.parametrize("letter", ["a", "-", " ", "語"])
def test_half_a_megabyte_of_one_letter_does_not_take_the_trainer_minutes(letter: str):
    trained = tokenizers.Tokenizer.from_str(tokenizer.train(["the words", letter * (1 << 19)], 300).decode())
    assert trained.decode(trained.encode(letter * 99).ids) == letter * 99


@given(st.lists(st.sampled_from(["a" * 5000, " " * 9000, "word ", "\n", "b" * 4096, "c" * 4095]), max_size=6))
def test_the_trainer_gets_all_of_a_text(parts: list[str]):
    parts_given = list(tokenizer._in_parts(["".join(parts)]))
    assert "".join(parts_given) == "".join(parts)
    assert not any("a" * 4097 in part or " " * 4097 in part for part in parts_given)
