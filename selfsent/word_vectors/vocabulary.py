"""Learn a WordPiece vocabulary from raw text."""

import json
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from selfsent.corpus.prepare import corpus_texts
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import resolve_sources
from selfsent.errors import UserError
from selfsent.progress import SILENT, Progress

SIZE = 16_384
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SAMPLE = 1_000_000  # sentences that are read, evenly from all sources
_CHARACTERS = 1 << 28  # of these, at most: texts may be long
_RARE = 1_000_000
_FEWEST = 100  # tokens; fewer are letters, not words


def learn_vocabulary(
    sources: Sequence[str], config: CorpusConfig, size: int | None = None, progress: Progress = SILENT
) -> PreTrainedTokenizerFast:
    """Learn a lower-cased WordPiece tokenizer, with BERT's splitting at spaces, punctuation and Chinese characters.

    Args:
        size: tokens, special ones included.  Default: ``SIZE``, or as many as the text gives.

    Raises:
        UserError: the text gives fewer tokens than ``size``, or hardly any.
    """
    if size is not None and size < _FEWEST:
        raise UserError(f"a vocabulary of {size} is too small to be words: ask for {_FEWEST} tokens or more")
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    # Accents are kept: in most scripts they distinguish words.
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(lowercase=True, strip_accents=False)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    sample = list(_sample(sources, config, progress))
    letters = _letters(sample, tokenizer.normalizer)
    # Without these the trainer numbers the letters inside words in a random order, and breaks ties by it.
    inner = [f"##{letter}" for letter in letters if not _stands_alone(letter)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size or SIZE,
        special_tokens=[*SPECIALS, *inner],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample, trainer, length=len(sample))
    definition = json.loads(tokenizer.to_str())  # only the real special tokens are added ones
    definition["added_tokens"] = [token for token in definition["added_tokens"] if token["content"] in SPECIALS]
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    learned = tokenizer.get_vocab_size()
    if size and learned > size:
        raise UserError(f"the letters of the text alone are {learned:,} tokens: ask for a vocabulary of that or more")
    if learned < (size or _FEWEST):
        missed = f" of the {size:,} asked for" if size else ""
        advice = f"ask for {learned:,} or fewer" if learned >= _FEWEST else "give more text"
        raise UserError(f"the text gives only {learned:,} tokens{missed}: {advice}")
    return framed_tokenizer(tokenizer)


def framed_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer with our special tokens for transformers; [CLS] and [SEP] go around every text."""
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, **{f"{name[1:-1].lower()}_token": name for name in SPECIALS}
    )


def _letters(sample: Sequence[str], normalizer: normalizers.Normalizer) -> list[str]:
    """List the characters that words are made of: all but those rarer than one in ``_RARE``."""
    counts: Counter[str] = Counter()
    for start in range(0, len(sample), 1000):
        counts.update(normalizer.normalize_str(" ".join(sample[start : start + 1000])))
    enough = counts.total() / _RARE
    return sorted(letter for letter, count in counts.items() if count >= enough and not letter.isspace())


def _stands_alone(letter: str) -> bool:
    """Tell whether a character is a word by itself: punctuation and Chinese characters."""
    chinese = unicodedata.name(letter, "").startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH"))
    return chinese or letter in string.punctuation or unicodedata.category(letter).startswith("P")


def _sample(sources: Sequence[str], config: CorpusConfig, progress: Progress) -> Iterator[str]:
    names = [source.name for source in resolve_sources(sources)]  # each file of a folder is a source of its own
    each, long = -(-SAMPLE // len(names)), -(-_CHARACTERS // len(names))
    texts = (text for name in names for text in _first(islice(corpus_texts([name], config), each), long))
    for number, text in enumerate(texts):
        if not number % 1024:
            progress.report("vocabulary", number, SAMPLE)
        yield text
    progress.report("vocabulary", SAMPLE, SAMPLE)


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    """Yield texts until they have so many characters."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return
