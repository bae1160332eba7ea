"""Have masked language models guess the same hidden words of the same held-out text.

Example: python benchmarks/masked_words.py builtin pilot --corpus wikipedia.jsonl.xz --out masked_words.json

Models of different vocabularies are compared on words that all of them know whole: 15 % of each text is hidden,
chosen among these, and each model guesses out of its whole vocabulary.  The text is what ``selfsent pretrain`` holds
out of the corpus; a model that others trained may have read it.  Each model's loss on pieces of its own stands beside.
"""

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from selfsent.corpus.prepare import prepare_corpus
from selfsent.corpus.settings import CorpusConfig
from selfsent.encoder.folder import SHIPPED

HIDDEN = 0.15
WORDS = 40  # of a text, at most
PIECES = 64  # of a row of a model's own pieces


def main() -> None:
    """Open the models, hide words, and say how well they were guessed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="folders, names on the hub, or builtin; the last is compared with")
    parser.add_argument("--corpus", nargs="+", required=True)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()

    opened = {name: _open(name) for name in given.models}
    first = next(iter(opened.values()))[1]
    held = prepare_corpus(given.corpus, CorpusConfig(), first, unit="documents").held_out.test
    texts = [f"{q} {p}".split()[:WORDS] for q, p in zip(held.queries, held.passages, strict=True)][: given.texts]
    known = _known([tokenizer for _, tokenizer in opened.values()])
    hidden = _choose(texts, known, given.seed)
    print(f"{len(texts):,} held-out texts, {sum(map(len, hidden)):,} hidden words")

    losses, report = {}, {}
    for name, (model, tokenizer) in opened.items():
        each, right = _guess(model, tokenizer, texts, hidden)
        own, own_right, pieces = _own(model, tokenizer, texts, given.seed)
        losses[name] = np.array([sum(row) for row in each])
        count = sum(map(len, each))
        report[name] = {
            "loss": losses[name].sum() / count,
            "accuracy": 100 * right / count,
            "own_pieces": {"loss": own, "accuracy": own_right, "pieces": pieces},
            "parameters": sum(p.numel() for p in model.parameters()),
        }
        print(
            f"{name:<30} {report[name]['loss']:.3f} nats a word, {report[name]['accuracy']:.1f} % right;  "
            f"own pieces: {own:.3f} nats, {own_right:.1f} % of {pieces:,}"
        )
    last = given.models[-1]
    counts = np.array([len(row) for row in hidden])
    drawn = np.random.default_rng(given.seed).integers(len(texts), size=(1000, len(texts)))
    for name in given.models[:-1]:
        gap = losses[name] - losses[last]
        low, high = np.quantile(gap[drawn].sum(1) / counts[drawn].sum(1), (0.025, 0.975))
        report[name]["below"] = {"model": last, "difference": gap.sum() / counts.sum(), "low": low, "high": high}
        print(f"{name} against {last}: {gap.sum() / counts.sum():+.3f} nats [{low:+.3f}, {high:+.3f}]")
    if given.out:
        given.out.write_text(json.dumps(report, indent=2, default=float) + "\n", encoding="utf-8")


def _open(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    place = str(SHIPPED["builtin-mlm"]) if name == "builtin" else name
    model = AutoModelForMaskedLM.from_pretrained(place, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(place)


def _known(tokenizers: list[PreTrainedTokenizerBase]) -> set[str]:
    """Return the words that are one piece to all of them."""
    vocabularies = [set(tokenizer.get_vocab()) for tokenizer in tokenizers]
    return {word for word in set.intersection(*vocabularies) if word.isalpha()}


def _choose(texts: list[list[str]], known: set[str], seed: int) -> list[list[int]]:
    """Choose the words to hide: bare words, without a comma or full stop at their end."""
    rng = random.Random(seed)
    chosen = []
    for words in texts:
        fit = [i for i, word in enumerate(words) if word.lower() in known]
        chosen.append(sorted(rng.sample(fit, min(len(fit), max(1, round(HIDDEN * len(words)))))))
    return chosen


@torch.inference_mode()
def _guess(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[list[str]], hidden: list[list[int]]
) -> tuple[list[list[float]], int]:
    """Return the loss of every hidden word of every text, and how many were the likeliest guess."""
    losses: list[list[float]] = []
    right = 0
    for words, places in zip(texts, hidden, strict=True):
        masked = [tokenizer.mask_token if i in places else word for i, word in enumerate(words)]
        ids = tokenizer(" ".join(masked), return_tensors="pt")
        at = ids["input_ids"][0] == tokenizer.mask_token_id
        labels = torch.tensor(tokenizer.convert_tokens_to_ids([words[i].lower() for i in places]))
        if not places:
            losses.append([])
            continue
        logits = model(**{k: v for k, v in ids.items() if k != "token_type_ids"}).logits[0, at]
        losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="none").tolist())
        right += int((logits.argmax(1) == labels).sum())
    return losses, right


@torch.inference_mode()
def _own(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[list[str]], seed: int
) -> tuple[float, float, int]:
    """Return loss, accuracy (%) and number of hidden pieces of the model's own, in packed rows."""
    stream = [i for words in texts for i in tokenizer(" ".join(words))["input_ids"]]
    rows = torch.tensor(stream[: len(stream) // PIECES * PIECES]).view(-1, PIECES)
    draw = torch.rand(rows.shape, generator=torch.Generator().manual_seed(seed))
    special = torch.isin(rows, torch.tensor(tokenizer.all_special_ids))
    chosen = (draw < HIDDEN) & ~special
    loss, right = 0.0, 0
    for row, mask in zip(rows.split(32), chosen.split(32), strict=True):
        logits = model(input_ids=row.masked_fill(mask, tokenizer.mask_token_id)).logits[mask]
        loss += float(torch.nn.functional.cross_entropy(logits, row[mask], reduction="sum"))
        right += int((logits.argmax(1) == row[mask]).sum())
    count = int(chosen.sum())
    return loss / count, 100 * right / count, count


if __name__ == "__main__":
    main()
