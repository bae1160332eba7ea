"""A tokenizer that puts every text into a template with a mask token, whose hidden state is the text's embedding.

The tokenizer's post-processor adds the template, as it adds [CLS] and [SEP].  So it is saved in tokenizer.json, works
without selfsent, and truncation shortens the text but not the template.

Source: Jiang et al. 2022 (PromptBERT), https://arxiv.org/abs/2201.04337; the template is that of DenoSent,
xinghaow99/DenoSent @ 35d05f5, which decodes a truncated text, fills the template as a string and tokenizes it again.
For WordPiece the tokens are the same, except that unknown pieces are lost there and stay [UNK] here.
"""

import json
import re
import warnings
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from selfsent.errors import UserError

TEMPLATE = '"[X]" means [MASK].'


def wrap_tokenizer(tokenizer: PreTrainedTokenizerBase, template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """Return a tokenizer that puts every text into the template.

    Special tokens typed in a text are removed, as in the authors' code: a text must not add a mask token.  The new
    tokenizer therefore has no mask token of its own, but returns the id of the old one.

    Args:
        template: holds ``[X]``, the place of the text, and ``[MASK]``, whatever the tokenizer's mask token is.

    Raises:
        UserError: a template without exactly one of each, a slow tokenizer, or one without a mask token.
    """
    if template.count("[X]") != 1 or template.count("[MASK]") != 1:
        raise UserError(f"template {template!r} does not fit: it holds [X] once and [MASK] once, as {TEMPLATE!r} does")
    name = tokenizer.name_or_path or type(tokenizer).__name__
    if not tokenizer.is_fast:
        raise UserError(f"the tokenizer of {name!r} is a slow one: a prompt needs one that has a tokenizer.json")
    if tokenizer.mask_token is None:
        raise UserError(f"the tokenizer of {name!r} has no mask token, or has a prompt already: give another base")
    definition: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    definition |= {"truncation": None, "padding": None}  # these are of the last call
    backend = Tokenizer.from_str(json.dumps(definition))
    sides = template.replace("[MASK]", tokenizer.mask_token).split("[X]")
    if any(tokenizer.unk_token in backend.encode(side, add_special_tokens=False).tokens for side in sides):
        message = f"template {template!r} holds words that the tokenizer of {name!r} does not know: choose others"
        warnings.warn(message, stacklevel=2)
    definition["post_processor"] = _frame(backend, sides)
    definition["normalizer"] = _without(tokenizer.all_special_tokens, definition["normalizer"])
    # Added tokens are matched before normalization, which therefore could not remove a mask token among them.
    added = definition["added_tokens"]
    definition["added_tokens"] = [token for token in added if token["content"] != tokenizer.mask_token]
    named = {role: token for role, token in tokenizer.special_tokens_map.items() if role != "mask_token"}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(definition)),
        split_special_tokens=True,  # otherwise the other special tokens are matched in texts, too
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **named,
    )


def prompt_length(tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the tokens that the tokenizer adds to a text beside special tokens; 0 without a template."""
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    return sum(piece not in special for piece in tokenizer("")["input_ids"])


def _frame(backend: Tokenizer, sides: list[str]) -> dict[str, Any]:
    """Describe the post-processor that puts ``sides`` around a text, and the usual special tokens around them."""
    bare = backend.encode("a")
    text = [place for place, special in enumerate(bare.special_tokens_mask) if not special]
    opening, closing = (backend.encode(side, add_special_tokens=False) for side in sides)
    left, right = [*bare.tokens[: text[0]], *opening.tokens], [*closing.tokens, *bare.tokens[text[-1] + 1 :]]
    ids = dict(zip(bare.tokens + opening.tokens + closing.tokens, bare.ids + opening.ids + closing.ids, strict=True))

    def around(*sequences: str) -> list[dict[str, Any]]:
        before, after = ([{"SpecialToken": {"id": token, "type_id": 0}} for token in side] for side in (left, right))
        return [*before, *({"Sequence": {"id": name, "type_id": 0}} for name in sequences), *after]

    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (*left, *right)},
    }


def _without(literals: list[str], normalizer: dict[str, Any] | None) -> dict[str, Any]:
    """Describe a normalizer that first replaces ``literals`` by a space, or by nothing at either end of the text."""
    one = re.escape(literals[0])
    run = "(?: ?(?:" + "|".join(map(re.escape, literals)) + "))+ ?"
    # Each run becomes one literal first: to test a whole run for the end of the text takes quadratic time.
    patterns = {run: literals[0], f"\\A{one}|{one}\\z": "", one: " "}
    steps = [{"type": "Replace", "pattern": {"Regex": regex}, "content": text} for regex, text in patterns.items()]
    return {"type": "Sequence", "normalizers": [*steps, *([normalizer] if normalizer else [])]}
