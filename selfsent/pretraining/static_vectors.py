"""An encoder for everyone in minutes: static word vectors, counted in the user's own text or read from a file."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from selfsent.corpus.prepare import CorpusConfig, prepare_corpus
from selfsent.encoder.save import save_encoder
from selfsent.errors import UserError
from selfsent.pretraining import factorization, vocabulary
from selfsent.progress import SILENT, Progress
from selfsent.run import Run, versions

_CASED = 0.01  # of a file's words, that have capitals: with more, capitals are kept


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """What decides the vectors beside the text."""

    vocabulary: int | None = None  # word pieces; None: vocabulary.SIZE, or as many as the text gives
    factors: factorization.FactorConfig = field(default_factory=factorization.FactorConfig)
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    seed: int = 42


def build_static_vectors(
    sources: Sequence[str], out: Path, settings: StaticConfig | None = None, *, progress: Progress = SILENT
) -> Path:
    """Make static word vectors from raw text; return the folder that ``SentenceTransformer`` opens.

    Raises:
        UserError: a source cannot be read, the text is too small for the vocabulary, or the memory for the counts.
    """
    settings, progress = settings or StaticConfig(), progress or Progress()
    Run.require_free(out)
    tokenizer = vocabulary.learn_vocabulary(sources, settings.corpus, settings.vocabulary, progress=progress)
    text = prepare_corpus(sources, settings.corpus, tokenizer, unit="documents", progress=progress)
    for line in text.account.lines():
        progress.say(f"  {line}")
    size, skip = len(tokenizer), np.array(tokenizer.all_special_ids)
    config = settings.factors
    table, words = factorization.count_cooccurrences(text, size, config.window, skip, progress)
    progress.say(f"{int(words.sum()):,} words counted; the table of their neighbours is being factorised")
    vectors = factorization.factorise(factorization.ppmi(table), config, settings.seed)
    vectors *= torch.from_numpy(factorization.word_weights(words, config.rarity)).float()[:, None]
    vectors = factorization.without_common(vectors, text, skip, config.common)
    vectors[skip] = 0
    run = Run.create(out, _facts(sources, settings))
    return run.publish(lambda folder: save_static_vectors(tokenizer.backend_tokenizer, vectors, folder))


def read_word_vectors(path: Path, out: Path, *, progress: Progress = SILENT) -> Path:
    """Make an encoder of a text file of word vectors (GloVe, fastText, word2vec); return its folder.

    A line is a word and its numbers between spaces; a first line of two numbers, as word2vec writes, is skipped.

    Raises:
        UserError: the file cannot be read, or a line does not fit; it is named.
    """
    Run.require_free(out)
    words, rows = _parse(path, progress)
    known = {word: number for number, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    cased = sum(word != word.lower() for word in words) > _CASED * len(words)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=not cased, strip_accents=False, handle_chinese_chars=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[UNK]"])
    torn = sum(len(encoding.ids) != 1 for encoding in tokenizer.encode_batch_fast(words))
    progress.say(
        f"{len(words):,} words, {'with' if cased else 'without'} capitals; {torn:,} of them are never met, "
        "because texts are split at spaces and punctuation"
    )
    vectors = torch.from_numpy(np.concatenate([np.zeros((1, rows.shape[1]), np.float32), rows]))
    run = Run.create(out, {"vectors": str(path), "versions": versions()})
    return run.publish(lambda folder: save_static_vectors(tokenizer, vectors, folder))


def _parse(path: Path, progress: Progress) -> tuple[list[str], NDArray[np.float32]]:
    words: dict[str, None] = {}
    rows: list[NDArray[np.float32]] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = _decoded(raw, number, path)
                cells = line.rstrip().split(" ")
                if number == 1 and len(cells) == 2 and all(cell.isdecimal() for cell in cells):
                    continue
                width = len(rows[0]) if rows else len(cells) - 1
                word = " ".join(cells[:-width]) if width else ""
                try:
                    row = np.array(cells[-width:], np.float32)
                except ValueError:
                    row = np.empty(0, np.float32)
                if not word or len(row) != width or not np.isfinite(row).all():
                    raise UserError(
                        f"line {number} of {path} is not a word and {width or 'its'} numbers between spaces: "
                        f"{line[:60].rstrip()!r}"
                    )
                if word not in words:  # of a word given twice, the first counts
                    words[word] = None
                    rows.append(row)
                if not number % 10_000:
                    progress.report("vectors", file.tell(), size)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if len(words) < 2:
        raise UserError(f"{path} holds no word vectors: expected lines of a word and its numbers")
    return list(words), np.stack(rows)


def _decoded(raw: bytes, number: int, path: Path) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UserError(f"line {number} of {path} is not UTF-8: give vectors as text, not in a binary form") from None


def save_static_vectors(tokenizer: Tokenizer, vectors: torch.Tensor, folder: Path) -> None:
    """Write vectors as a folder of stock modules that ``SentenceTransformer(folder)`` opens."""
    encoder = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    save_encoder(encoder, folder)


def _facts(sources: Sequence[str], settings: StaticConfig) -> dict[str, Any]:
    return {"texts": [str(source) for source in sources], "settings": asdict(settings), "versions": versions()}
