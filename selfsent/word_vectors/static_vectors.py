"""An encoder of static word vectors in minutes: factorised from co-occurrences in raw text, or read from a file."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from selfsent.config import FINITE, SEEDS, setting
from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import resolve_sources
from selfsent.errors import DataError, EncoderError, UserError
from selfsent.progress import SILENT, Progress
from selfsent.storage import atomic
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import Run
from selfsent.word_vectors import factorization

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

COUNTED = 50_000  # documents behind the vectors of a comparison, at most
_COMPARED = 8192  # tokens of those
_CASED = 0.01  # share of a file's words with capitals above which the tokenizer keeps case


@dataclass(frozen=True, kw_only=True, config=FINITE)
class StaticConfig:
    """What decides the vectors, apart from the text."""

    vocabulary: int | None = setting(None, "tokens; None: 16,384, or as many as the text gives", ge=1, le=1_000_000)
    factors: factorization.FactorConfig = Field(default_factory=lambda: factorization.FactorConfig())
    corpus: CorpusConfig = Field(default_factory=lambda: CorpusConfig())
    seed: int = setting(42, "of the factorisation", ge=0, le=SEEDS)


def build_static_vectors(
    sources: Sequence[str], out: Path, settings: StaticConfig, *, progress: Progress = SILENT
) -> Path:
    """Make static word vectors from raw text; return the folder that ``SentenceTransformer`` opens.

    Raises:
        UserError: a source cannot be read, the text is too small for the vocabulary, or the memory for the counts.
    """
    from selfsent.word_vectors import vocabulary  # with transformers, which vectors that are in the cache do not need

    Run.require_free(out)
    tokenizer = vocabulary.learn_vocabulary(sources, settings.corpus, settings.vocabulary, progress)
    text = prepare_corpus(sources, settings.corpus, tokenizer, unit="documents", progress=progress)
    for line in text.account.lines():
        progress.say(f"  {line}")
    skip, config = np.array(tokenizer.all_special_ids), settings.factors
    vectors, words = factorization.word_vectors(text, len(tokenizer), skip, config, settings.seed, progress)
    vectors *= torch.from_numpy(factorization.sif_weights(words, config.sif_coefficient)).float()[:, None]
    vectors = factorization.without_common(vectors, text, skip, config.common)
    facts = {"texts": [str(source) for source in sources], "settings": asdict(settings), "versions": versions()}
    run = Run.create(out, facts)
    return run.publish(lambda folder: _save(tokenizer.backend_tokenizer, vectors, folder))


def cached_static_vectors(sources: Sequence[str], config: CorpusConfig, seed: int, progress: Progress = SILENT) -> Path:
    """Return the folder of static word vectors of at most ``COUNTED`` documents, from the cache if possible.

    They are what an encoder is compared with, and so smaller than those that ``build_static_vectors`` makes.

    Raises:
        UserError: as ``build_static_vectors``.
    """
    settings = StaticConfig(vocabulary=_COMPARED, corpus=replace(config, max_texts=COUNTED), seed=seed)
    identity = [[source.identity() for source in resolve_sources(sources)], repr(settings)]
    fingerprint = hashlib.sha256(json.dumps(identity, default=str).encode()).hexdigest()[:24]
    folder = atomic.cache_folder("static", fingerprint)
    if not atomic.cached(folder):
        progress.say("static word vectors of this text are computed")
        with atomic.build_folder(folder) as scratch:
            try:
                build_static_vectors(sources, scratch / "run", settings)
            except UserError:  # the text may have fewer tokens: take as many as it has
                build_static_vectors(sources, scratch / "run", replace(settings, vocabulary=None))
    return folder / "run" / "model"


def read_word_vectors(path: Path, out: Path, *, progress: Progress = SILENT) -> Path:
    """Make an encoder from a text file of word vectors (GloVe, fastText, word2vec); return its folder.

    A line is a word and its numbers between spaces; a first line of two numbers, as word2vec writes, is skipped.

    Raises:
        UserError: the file cannot be read, or a line does not fit; the message names it.
    """
    Run.require_free(out)
    words, rows = _parse(path, progress)
    numbers = {word: number for number, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    cased = sum(word != word.lower() for word in words) > _CASED * len(words)
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=not cased, strip_accents=False, handle_chinese_chars=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[UNK]"])
    unreachable = sum(len(encoding.ids) != 1 for encoding in tokenizer.encode_batch_fast(words))
    progress.say(
        f"{len(words):,} words, {'with' if cased else 'without'} capitals; {unreachable:,} of them are never "
        "looked up, because texts are split at spaces and punctuation"
    )
    vectors = torch.from_numpy(np.concatenate([np.zeros((1, rows.shape[1]), np.float32), rows]))
    run = Run.create(out, {"vectors": str(path), "versions": versions()})
    return run.publish(lambda folder: _save(tokenizer, vectors, folder))


def _parse(path: Path, progress: Progress) -> tuple[list[str], NDArray[np.float32]]:
    vectors: dict[str, NDArray[np.float32]] = {}
    width = 0
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    cells = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip().split(" ")
                    if number == 1 and len(cells) == 2 and all(cell.isdecimal() for cell in cells):
                        continue
                    width = width or len(cells) - 1
                    word, row = " ".join(cells[:-width]), np.array(cells[-width:], np.float32)
                except ValueError:  # no UTF-8, or no numbers
                    word = ""
                if not word or not np.isfinite(row).all():
                    raise DataError(
                        f"line {number} of {path} is not a word and {width or 'its'} numbers between spaces in UTF-8: "
                        f"{line[:60]!r}"
                    )
                vectors.setdefault(word, row)  # the first vector of a repeated word is kept
                if not number % 10_000:
                    progress.report("vectors", file.tell(), size)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    if len(vectors) < 2:
        raise DataError(f"{path} holds no word vectors: expected lines of a word and its numbers")
    return list(vectors), np.stack(list(vectors.values()))


def _save(tokenizer: Tokenizer, vectors: torch.Tensor, folder: Path) -> None:
    """Write vectors as a folder of stock modules that ``SentenceTransformer(folder)`` opens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from selfsent.encoder.save import save_encoder

    encoder = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=vectors)], device="cpu")
    save_encoder(encoder, folder)


def load_framed(folder: str) -> "tuple[PreTrainedTokenizerFast, torch.Tensor]":
    """Return the tokenizer of a folder of static vectors, as a masked LM needs it, and the vectors.

    Raises:
        EncoderError: it holds others, or their vocabulary has no special tokens.
    """
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from selfsent.encoder.load import load_encoder
    from selfsent.word_vectors import vocabulary

    module = load_encoder(folder)[0]
    if not isinstance(module, StaticEmbedding):
        raise EncoderError(f"{folder} holds no static vectors: give a folder that --size static made")
    missing = set(vocabulary.SPECIALS) - set(module.tokenizer.get_vocab())
    if missing:
        raise EncoderError(
            f"the vocabulary of {folder} has no {', '.join(sorted(missing))}, which a masked LM needs: "
            "give vectors that --size static made from text"
        )
    return vocabulary.framed_tokenizer(module.tokenizer), module.embedding.weight.detach().clone()
