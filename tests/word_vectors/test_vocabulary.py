"""A WordPiece vocabulary from raw text."""

import subprocess
import sys

import pytest
from tokenizers import Tokenizer

from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import UserError
from selfsent.progress import SILENT
from selfsent.word_vectors import vocabulary

CORPUS = CorpusConfig()


def test_special_tokens_come_first_and_texts_are_framed_and_lower_cased(text):
    tokenizer = vocabulary.learn_vocabulary([str(text)], CORPUS, 120)
    assert len(tokenizer) == 120
    assert tokenizer.convert_ids_to_tokens(range(5)) == list(vocabulary.SPECIALS)
    assert tokenizer.convert_ids_to_tokens(tokenizer("The SHIP")["input_ids"]) == ["[CLS]", "the", "ship", "[SEP]"]
    assert tokenizer.mask_token == "[MASK]"
    assert tokenizer.decode(tokenizer("butter and salt")["input_ids"], skip_special_tokens=True) == "butter and salt"


MARKS = """
import sys
from pathlib import Path
from selfsent.corpus.settings import CorpusConfig
from selfsent.word_vectors import vocabulary
words = ["कुल", "कल", "किताब", "पानी", "रोटी", "für", "fur", "20°", "5€", "7±2", "3×4", "がく", "かく", "ปี", "ปู",
         "ship", "storm", "harbour", "kitchen", "butter", "recipe"]
line = lambda n: " ".join(words[(n * k + k) % len(words)] for k in range(2, 14))
path = Path(sys.argv[1])
path.write_text("".join(f"{line(n)}\\n" for n in range(300)), encoding="utf-8")
found = vocabulary.learn_vocabulary([str(path)], CorpusConfig()).backend_tokenizer.to_str()
sys.stdout.buffer.write(found.encode())
"""


def test_other_scripts_have_the_same_vocabulary_in_every_process_and_their_marks_count(tmp_path):
    words = [sys.executable, "-c", MARKS, str(tmp_path / "text.txt")]
    one, two = (subprocess.run(words, capture_output=True, check=True).stdout.decode() for _ in range(2))
    assert one == two
    backend = Tokenizer.from_str(one)
    for one, other in (("कुल", "कल"), ("für", "fur"), ("がく", "かく"), ("ปี", "ปู")):
        assert backend.encode(one).ids != backend.encode(other).ids
    assert backend.encode("fu\u0308r").ids == backend.encode("f\u00fcr").ids


def test_without_a_size_there_are_as_many_pieces_as_the_text_gives(text):
    assert 100 <= len(vocabulary.learn_vocabulary([str(text)], CORPUS)) < 1000


@pytest.mark.parametrize(
    ("content", "size", "message"),
    [
        (None, 5000, r"gives only (\d+) tokens of the 5,000 asked for: ask for \1 or"),
        (None, 20, "a vocabulary of 20 is too small"),
        ("aa bb\n" * 50, None, r"gives only .* tokens: give more text"),
        (
            f"{''.join(chr(0x4E00 + n) for n in range(300))}\n" * 20,
            200,
            r"letters of the text alone are [\d,]+ tokens: ask",
        ),
    ],
    ids=["more than there are", "too few", "one line", "letters"],
)
def test_a_text_that_does_not_give_the_vocabulary_is_refused(text, tmp_path, content, size, message):
    (tmp_path / "text.txt").write_text(content or "", encoding="utf-8")
    with pytest.raises(UserError, match=message):
        vocabulary.learn_vocabulary([str(tmp_path / "text.txt" if content else text)], CORPUS, size)


def test_every_source_has_its_share_of_what_is_read(tmp_path, monkeypatch):
    for name, word in (("a", "alpha"), ("b", "beta")):
        lines = (f"{word} {word}{number} one two three\n" for number in range(60))
        (tmp_path / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(vocabulary, "SAMPLE", 20)
    read = list(vocabulary._sample([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], CORPUS, SILENT))
    assert [sum(line.startswith(word) for line in read) for word in ("alpha", "beta")] == [10, 10]


def test_every_file_of_a_folder_is_sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "SAMPLE", 300)
    for name, words in (("a.txt", "ship storm harbour butter recipe"), ("b.txt", "θάλασσα λιμάνι πλοίο κύμα φούρνος")):
        lines = [f"{word} {words} {n}" for n in range(100) for word in words.split()]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    tokenizer = vocabulary.learn_vocabulary([str(tmp_path)], CORPUS)
    assert "[UNK]" not in tokenizer.tokenize("θάλασσα storm")


def test_a_sample_ends_at_so_many_characters(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "_CHARACTERS", 1000)
    (tmp_path / "long.txt").write_text("\n".join(f"{n} ".ljust(400, "x") for n in range(50)), encoding="utf-8")
    assert len(list(vocabulary._sample([str(tmp_path / "long.txt")], CORPUS, SILENT))) == 3
