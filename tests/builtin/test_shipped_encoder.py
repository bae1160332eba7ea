"""The encoders that ship: small enough, open to everybody, and they have read."""

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForMaskedLM, AutoTokenizer

from selfsent.encoder.folder import SHIPPED


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("builtin", ("Wikipedia", "CC BY-SA", "pairs", "STS", "Limits", "selfsent train")),
        ("builtin-static", ("Wikipedia", "CC BY-SA", "tokens", "STS", "Limits", "selfsent pretrain")),
        ("builtin-mlm", ("Wikipedia", "Gutenberg", "CC BY-SA", "tokens", "STS", "Limits", "selfsent pretrain")),
    ],
)
def test_each_takes_at_most_20_megabytes_and_says_what_it_is(name, parts):
    assert size(SHIPPED[name]) <= 20e6
    card = (SHIPPED[name] / "README.md").read_text(encoding="utf-8")
    assert [part for part in parts if part not in card] == []


def test_all_of_them_fit_into_a_wheel_of_sixty_megabytes():
    assert sum(map(size, SHIPPED.values())) <= 55e6


@pytest.mark.parametrize("name", SHIPPED)
def test_each_opens_without_us_and_likes_neighbours_better_than_strangers(name):
    model = SentenceTransformer(str(SHIPPED[name]), device="cpu")
    if name != "builtin-static":  # which sentence-transformers opens in the type of the file
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    texts = [
        "The river floods the valley in spring.",
        "Every spring the valley is under water when the river rises.",
        "The bank raised its interest rate by half a point.",
        "Borrowing became dearer when the bank lifted its rate.",
    ]
    vectors = model.encode(texts, normalize_embeddings=True)
    similar = vectors @ vectors.T
    assert min(similar[0, 1], similar[2, 3]) > np.max(similar[:2, 2:])


def test_it_guesses_words_from_what_stands_around_them():
    model = AutoModelForMaskedLM.from_pretrained(str(SHIPPED["builtin-mlm"])).eval()
    tokenizer = AutoTokenizer.from_pretrained(str(SHIPPED["builtin-mlm"]))
    # Guessing the most frequent word is right in none of these.
    sentences = {
        "he was born in new [MASK] city .": "york",
        "the united [MASK] of america": "states",
        "the album was released in the united [MASK] in 1998 .": "states",
        "she was one of the [MASK] women to be elected to parliament .": "first",
        "he died at the age [MASK] 74 .": "of",
        "the second world [MASK] ended in 1945 .": "war",
    }
    right = 0
    for sentence, word in sentences.items():
        batch = tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[0]
        hole = int((batch["input_ids"][0] == tokenizer.mask_token_id).nonzero())
        right += tokenizer.convert_ids_to_tokens(int(logits[hole].argmax())) == word
    assert right >= 5
