"""A tokenizer that puts every text into a sentence with a hole, so that the encoder's state at the hole embeds it.

The frame is the tokenizer's post-processor, where [CLS] and [SEP] stand already.  It is saved in tokenizer.json, needs
no code of ours to be used, and is never cut: truncation makes room for it and shortens the text alone.

Source: Jiang et al. 2022 (PromptBERT), https://arxiv.org/abs/2201.04337; the template is that of DenoSent,
xinghaow99/DenoSent @ 35d05f5, which decodes a shortened text, fills the template as a string and tokenizes it again.
For WordPiece that comes to the same tokens but for pieces that are unknown: they vanish there and stay [UNK] here.
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
    """Return a tokenizer that frames every text by itself.

    A text has no say in where the hole is: special tokens typed in it, the mask token above all, vanish, as they do in
    the authors' code.  The new tokenizer therefore has no mask token; what it gives still has the id of the old one.

    Args:
        template: ``[X]`` is where the text goes, ``[MASK]`` the hole, whatever the mask token of the tokenizer is.

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
    definition |= {"truncation": None, "padding": None}  # what it was last called with is no part of it
    backend = Tokenizer.from_str(json.dumps(definition))
    sides = template.replace("[MASK]", tokenizer.mask_token).split("[X]")
    if any(tokenizer.unk_token in backend.encode(side, add_special_tokens=False).tokens for side in sides):
        warnings.warn(
            f"template {template!r} holds words that the tokenizer of {name!r} does not know: give one in its words",
            stacklevel=2,
        )
    definition["post_processor"] = _frame(backend, sides)
    definition["normalizer"] = _without(tokenizer.all_special_tokens, definition["normalizer"])
    # Added tokens are looked for before anything is normalized: a mask token among them could be typed.
    definition["added_tokens"] = [
        token for token in definition["added_tokens"] if token["content"] != tokenizer.mask_token
    ]
    named = {role: token for role, token in tokenizer.special_tokens_map.items() if role != "mask_token"}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(definition)),
        split_special_tokens=True,  # the others are looked for by name as well, unless told so
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **named,
    )


def prompt_length(tokenizer: PreTrainedTokenizerBase) -> int:
    """Count the pieces that the tokenizer puts around a text beside its special tokens; 0 without a prompt."""
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    return sum(piece not in special for piece in tokenizer("")["input_ids"])


def _frame(backend: Tokenizer, sides: list[str]) -> dict[str, Any]:
    """Describe the post-processor that puts ``sides`` around a text, inside of what is put there anyway."""
    bare = backend.encode("a")
    text = [place for place, special in enumerate(bare.special_tokens_mask) if not special]
    opening, closing = (backend.encode(side, add_special_tokens=False) for side in sides)
    before = [*bare.tokens[: text[0]], *opening.tokens], [*bare.ids[: text[0]], *opening.ids]
    after = [*closing.tokens, *bare.tokens[text[-1] + 1 :]], [*closing.ids, *bare.ids[text[-1] + 1 :]]
    pieces = {token: number for tokens, ids in (before, after) for token, number in zip(tokens, ids, strict=True)}

    def around(*sequences: str) -> list[dict[str, Any]]:
        inside = [{"Sequence": {"id": sequence, "type_id": 0}} for sequence in sequences]
        left, right = (
            [{"SpecialToken": {"id": token, "type_id": 0}} for token in tokens] for tokens, _ in (before, after)
        )
        return [*left, *inside, *right]

    return {
        "type": "TemplateProcessing",
        "single": around("A"),
        "pair": around("A", "B"),
        "special_tokens": {
            token: {"id": token, "ids": [number], "tokens": [token]} for token, number in pieces.items()
        },
    }


def _without(literals: list[str], normalizer: dict[str, Any] | None) -> dict[str, Any]:
    """Describe a normalizer that first takes ``literals`` out, a space in the place of those between words."""
    one = re.escape(literals[0])
    run = "(?: ?(?:" + "|".join(map(re.escape, literals)) + "))+ ?"
    # Each run becomes one literal first: asking of a whole run whether it ends the text takes time with its square.
    replacements = {run: literals[0], f"\\A{one}|{one}\\z": "", one: " "}
    steps = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in replacements.items()
    ]
    return {"type": "Sequence", "normalizers": [*steps, *([] if normalizer is None else [normalizer])]}
