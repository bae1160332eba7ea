"""The prompt: around every text, whole under any limit, with one hole that no text can move."""

import json
import time
from pathlib import Path

import pytest
from tiny import TEXTS, make_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from selfsent.corpus.tokenize import WordPieces
from selfsent.encoder import prompt
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError

BERT = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
ROBERTA = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}


def wordpiece(vocabulary):
    """BERT's own pipeline over a vocabulary: clean, lower-case, split at punctuation, longest piece first."""
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **BERT)


@pytest.fixture(scope="module")
def plain():
    """The built-in encoder's tokenizer, which is of BERT's kind."""
    return load_encoder("builtin").tokenizer


@pytest.fixture(scope="module")
def wrapped(plain):
    return prompt.wrap_tokenizer(plain)


@pytest.fixture(scope="module")
def byte_level():
    """A small tokenizer of RoBERTa's kind: bytes, spaces in front of words, a mask that takes the space before it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=list(ROBERTA.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([*TEXTS, 'this "sentence" means .'] * 3, trainer)
    ids = {token: backend.token_to_id(token) for token in ("<s>", "</s>")}
    backend.post_processor = processors.RobertaProcessing(("</s>", ids["</s>"]), ("<s>", ids["<s>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **ROBERTA)
    tokenizer.add_special_tokens({"mask_token": AddedToken("<mask>", lstrip=True, special=True)})
    return tokenizer


def pieces(tokenizer, text, **limits):
    return tokenizer.convert_ids_to_tokens(tokenizer(text, **limits)["input_ids"])


# the authors' prompts


def test_prompts_are_those_of_the_authors_but_for_unknown_pieces(golden):
    """Their vocabulary is rebuilt from the pieces their prompts hold: longest first, it cuts these texts as theirs.

    One row must differ.  They decode the tokens of a text without special ones, of which [UNK] is one, so that a sign
    that the vocabulary lacks vanishes; a tokenizer that does its work in one go has no such step.
    """
    values = golden("denosent_prompts")
    strings = json.loads(Path(values.zip.filename).with_suffix(".json").read_text())
    rows = strings["transformers_5.23.0"]["maxlen32"]["rows"]
    known = {token: number for row in rows for token, number in zip(row["tokens"], row["input_ids"], strict=True)}
    vocabulary = {"[PAD]": 0, "[UNK]": 100, **known}
    tokenizer = prompt.wrap_tokenizer(wordpiece(vocabulary))
    extra = prompt.prompt_length(tokenizer)
    assert extra == 5
    expected = [
        ids[mask == 1].tolist()
        for ids, mask in zip(
            values["maxlen32_tf5_23_0_input_ids"], values["maxlen32_tf5_23_0_attention_mask"], strict=True
        )
    ]
    actual = [
        tokenizer(str(text), truncation=True, max_length=32 + extra)["input_ids"]
        for text in values["maxlen32_sentences"]
    ]
    unknown = [row for row, ids in enumerate(actual) if 100 in ids]
    assert [str(values["maxlen32_sentences"][row]) for row in unknown] == ["unknown sign 🧿 vanishes"]
    assert actual[unknown[0]].count(100) == 1
    actual[unknown[0]].remove(100)
    assert actual == expected
    assert max(map(len, actual)) == 37
    assert all(ids.count(103) == 1 for ids in actual)


def test_the_prompt_holds_the_pieces_of_the_filled_template(plain, wrapped):
    for text in [*TEXTS, "Zoë's café, 1,000 miles off; well!"]:
        assert wrapped(text)["input_ids"] == plain(f'"{text}" means [MASK].')["input_ids"]


def test_byte_level_pieces_keep_the_spaces_of_the_template(byte_level):
    wrapped = prompt.wrap_tokenizer(byte_level)
    for text in TEXTS:
        assert wrapped(text)["input_ids"] == byte_level(f'"{text}" means <mask>.')["input_ids"]
    assert pieces(wrapped, "the cat <mask> sat") == pieces(wrapped, "the cat sat")
    assert pieces(wrapped, "<mask> the cat <mask>") == pieces(wrapped, "the cat")


def test_the_hole_may_come_before_the_text(plain):
    wrapped = prompt.wrap_tokenizer(plain, "A [MASK] sentence: [X]!")
    assert pieces(wrapped, "the cat") == ["[CLS]", "a", "[MASK]", "sentence", ":", "the", "cat", "!", "[SEP]"]
    assert prompt.prompt_length(wrapped) == 5


# what a text cannot do


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a [MASK] b", ["a", "b"]),
        ("a[MASK]b", ["a", "b"]),
        ("[MASK]", []),
        ("[MASK] [MASK][SEP] the cat [CLS]", ["the", "cat"]),
        ("[PAD] the [UNK] cat", ["the", "cat"]),
        ("", []),
    ],
)
def test_special_tokens_typed_in_a_text_vanish(wrapped, text, left):
    assert pieces(wrapped, text) == ["[CLS]", '"', *left, '"', "means", "[MASK]", ".", "[SEP]"]


def test_long_texts_are_shortened_and_the_prompt_is_not(wrapped):
    for limit in (20, 512):
        tokens = pieces(wrapped, "cat " * 5000, truncation=True, max_length=limit)
        assert tokens == ["[CLS]", '"', *["cat"] * (limit - 7), '"', "means", "[MASK]", ".", "[SEP]"]


def test_a_text_of_many_masks_takes_no_time(wrapped):  # a careless pattern takes time with their square: eight seconds
    start = time.perf_counter()
    assert pieces(wrapped, "[MASK] " * 10_000 + "x") == pieces(wrapped, "x")
    assert pieces(wrapped, "x " + "[MASK] " * 10_000 + "x") == pieces(wrapped, "x x")
    assert time.perf_counter() - start < 2


def test_case_decides_what_is_a_mask_token(plain, wrapped):
    assert pieces(wrapped, "[mask]") == pieces(plain, '"[mask]" means [MASK].')


# the tokenizer as a whole


def test_a_saved_tokenizer_opens_with_its_prompt(wrapped, tmp_path):
    wrapped.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "a [MASK] b [SEP] c"]:
        assert again(text)["input_ids"] == wrapped(text)["input_ids"]
    assert again.mask_token is None
    assert prompt.prompt_length(again) == 5
    assert again.model_max_length == wrapped.model_max_length


def test_limits_of_an_earlier_call_cut_nothing_off_the_prompt(wrapped):
    used = load_encoder("builtin").tokenizer
    used("the cat sat on the mat", truncation=True, max_length=3)
    assert pieces(prompt.wrap_tokenizer(used), TEXTS[0]) == pieces(wrapped, TEXTS[0])


def test_the_vocabulary_is_the_same_and_the_old_tokenizer_too(plain, wrapped):
    assert wrapped.get_vocab() == plain.get_vocab()
    assert plain.mask_token == "[MASK]"
    assert prompt.prompt_length(plain) == 0
    assert pieces(plain, "the cat") == ["[CLS]", "the", "cat", "[SEP]"]


def test_a_prepared_corpus_gets_the_prompt_unasked(wrapped):
    corpus = WordPieces(wrapped)
    ids, lengths = corpus.encode(["the cat sat", "a [MASK] b"])
    assert lengths.tolist() == [3, 2]
    assert [*corpus.before, *ids[:3].tolist(), *corpus.after] == wrapped("the cat sat")["input_ids"]
    assert corpus.specials == 2 + prompt.prompt_length(wrapped)
    assert corpus.identity != WordPieces(load_encoder("builtin").tokenizer).identity


# what cannot be


@pytest.mark.parametrize("template", ["means [MASK].", '"[X]" means', "[X] [X] [MASK]", "[X] [MASK] [MASK]", ""])
def test_a_template_without_one_text_and_one_hole_is_refused(plain, template):
    with pytest.raises(UserError, match=r"it holds \[X\] once and \[MASK\] once"):
        prompt.wrap_tokenizer(plain, template)


def test_a_second_prompt_is_refused(wrapped):
    with pytest.raises(UserError, match="has no mask token, or has a prompt already"):
        prompt.wrap_tokenizer(wrapped)


def test_a_template_of_unknown_words_is_warned_of():
    with pytest.warns(UserWarning, match="holds words that the tokenizer of .* does not know"):
        wrapped = prompt.wrap_tokenizer(make_tokenizer())
    assert prompt.prompt_length(wrapped) == 5
