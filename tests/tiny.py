"""Tiny encoders of every family, and a few texts, for all tests."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedTokenizerFast

from selfsent.encoder.assemble import quietly
from selfsent.objectives.base import Examples, Objective

TEXTS = [
    "the cat sat on the mat",
    "a dog barked at the moon all night",
    "rain fell on the quiet town",
    "she reads a book about old ships",
    "the train was late again today",
    "he cooks rice with beans and garlic",
]
PROMPT = "she reads [X] about the [MASK] book"  # in words of the tiny encoder
HARD = [*TEXTS, "", "[MASK]", "a [MASK] b [SEP] c", "rain " * 500]
WORDS = ["sun", "rain", "cat", "dog", "tree", "house", "boat", "music"]
WORDS += ["bread", "stone", "river", "child", "red", "old", "quiet", "fast"]
FAMILIES = [
    *("bert", "roberta", "distilbert", "mpnet", "electra", "xlm-roberta", "roberta-prelayernorm"),
    *("modernbert", "deberta-v2", "albert", "nomic_bert", "gte"),
]
USUAL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
GROUPED = USUAL | {"num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 2, "eos_token_id": 3}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "eos_token_id": 3}
OTHERS = {
    "t5": T5,
    "mt5": T5,
    "umt5": T5,
    "qwen3": GROUPED,
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": 4},
    "gemma2": GROUPED | {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 8},  # which our attention has not
    "gemma3_text": GROUPED | {"use_bidirectional_attention": True},
    "eurobert": GROUPED | {"mask_token_id": 4},
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A word-level tokenizer over the test texts; unknown words are [UNK]."""
    words = sorted({word for text in TEXTS for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: index for index, token in enumerate(special + words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )


def make_base(folder: Path, family: str = "bert", dropout: float = 0.1, layers: int = 2, seed: int = 0) -> Path:
    """Write a tiny random masked language model of ``family``, as save_pretrained would."""
    tokenizer = make_tokenizer()
    sizes = {
        "dim": 32,
        "n_layers": layers,
        "n_heads": 4,
        "hidden_dim": 64,
        "dropout": dropout,
        "attention_dropout": dropout,
    }
    usual = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    extra = {
        "electra": {"embedding_size": 32},
        "albert": {"embedding_size": 16, "hidden_act": "gelu"},
        # Of four layers' kinds two: one that sees every token, and one that sees two to either side.
        "modernbert": {"attention_dropout": dropout, "embedding_dropout": dropout, "mlp_dropout": dropout}
        | {"global_attn_every_n_layers": 2, "local_attention": 4, "norm_bias": True}
        | {"cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3},
        "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
        | {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 8},  # as DeBERTa-v3 has it
    }.get(family, {})
    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        max_position_embeddings=80,
        pad_token_id=0,
        **(sizes if family == "distilbert" else usual),
        **extra,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForMaskedLM.from_config(config)
    with quietly():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_folder(folder, family, side="right", ends=True):
    """Write a tiny random model of any architecture; ``ends``: its tokenizer puts a last token behind a text."""
    if family in FAMILIES:
        make_base(folder, family)
        model, tokenizer = AutoModel.from_pretrained(folder), make_tokenizer()
    else:
        tokenizer = make_tokenizer()
        sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 80, "pad_token_id": 0}
        with quietly(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModel.from_config(AutoConfig.for_model(family, **sizes | OTHERS[family]))
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single="$A [SEP]" if ends else "$A", special_tokens=[("[SEP]", 3)] if ends else []
        )
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.3)
    tokenizer.padding_side = side
    with quietly():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_examples(objective: Objective, rows: list[list[int]], positives: list[list[int]] | None = None) -> Examples:
    """A batch for any objective: the rows themselves, or documents that are random mixtures of their words."""
    if objective.unit == "documents":
        words = np.unique(np.concatenate([row[1:-1] for row in rows]))
        draw = np.random.default_rng(0)
        about = [draw.choice(words, 5) for _ in range(4)]  # what each document is about
        rows = [[rows[0][0], *draw.choice(topic, 300).tolist(), rows[0][-1]] for topic in about]
    return Examples(rows, positives, lambda i: np.random.default_rng([0, 0, i]))


# Where a head could take its activation or its width from the wrong place, the family is given odd ones.
ODD = {
    "bert": {"hidden_act": "relu"},
    "roberta": {"hidden_act": "relu"},
    "distilbert": {"activation": "relu"},
    "electra": {"embedding_size": 16, "hidden_act": "relu"},
}


def masked_language_model(folder, family):
    """The family's own masked LM, saved in ``folder``, every weight drawn wide enough to be told from its default."""
    config = AutoConfig.from_pretrained(make_base(folder, family))
    config.update(ODD.get(family, {}))
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(1)
        model = AutoModelForMaskedLM.from_config(config).eval()
        for name, parameter in model.named_parameters():
            nn.init.normal_(parameter, mean=float("norm.weight" in name.lower()), std=0.2)
        model.save_pretrained(folder)
    return model
