"""Everything we ask of a SentenceTransformer beyond its own methods: load, pool, steer dropout, embed, encode."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Pooling,
    StaticEmbedding,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from sentence_transformers.util import is_sentence_transformer_model, load_file_path
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from selfsent import dropout as droppers
from selfsent import fused, hardware, prompt, static
from selfsent.errors import UserError, unknown
from selfsent.functional import vocabulary_loss

Tokens = dict[str, Tensor]  # what a tokenizer returns: input_ids (B, T), attention_mask (B, T)

BUILTIN = Path(__file__).parent / "builtin" / "encoder"
POOLINGS = ("cls", "cls_pooler", "first_last", "first_last_paper", "mean", "prompt", "top2")
UNLIMITED = 1 << 20  # word pieces: what static vectors, which read everything, are said to read
_MLM_HEADS = (  # where a masked LM keeps the dense, LayerNorm and activation of its head; no activation means gelu
    tuple(f"cls.predictions.transform.{name}" for name in ("dense", "LayerNorm", "transform_act_fn")),  # BERT
    ("lm_head.dense", "lm_head.layer_norm"),  # RoBERTa, XLM-R, MPNet
    ("vocab_transform", "vocab_layer_norm", "activation"),  # DistilBERT
    tuple(f"generator_predictions.{name}" for name in ("dense", "LayerNorm", "activation")),  # ELECTRA's generator
)
_TOKENS_A_BATCH = 4096  # encode() on a CPU: enough rows for full-speed products, few enough to stay in the cache
_TOKENS_ELSEWHERE = 16 * _TOKENS_A_BATCH  # on a GPU, which is waited for after each batch; not measured on one


# ---------------------------------------------------------------------------------------------------------------
# loading


def load(
    name: str | Path,
    *,
    pooling: str | None = None,
    template: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
) -> SentenceTransformer:
    """Open an encoder, ready for training and encoding.

    Args:
        name: "builtin", a folder, or a name on the Hugging Face hub.
        pooling: one of ``POOLINGS``; ``mean`` keeps the weights that a folder gives to words.  Default: the folder's;
            ``cls``, as the papers train, where it has none.
        template: what ``prompt`` puts around a text.  Default: the folder's, or ``prompt.TEMPLATE``.
        max_length: word pieces, special tokens included; static vectors read everything.  Default: the encoder's own.
        dropout: the rate for every site.  Default: the encoder's own rates.

    Raises:
        UserError: no such folder or name, not an encoder of text, an unknown pooling, or a template that does not fit.
    """
    if pooling is not None and pooling not in POOLINGS:
        raise unknown("pooling", pooling, POOLINGS)
    if template is not None and pooling != "prompt":
        raise UserError(f"template {template!r} does not fit pooling {pooling!r}: give it with pooling 'prompt'")
    where = BUILTIN if str(name) == "builtin" else name
    finished = _is_sentence_transformer(where)
    layered = _has_layers(where, finished)
    if layered:
        _refuse_what_is_no_encoder(where)
    try:
        with quietly():
            kept = finished and (not layered or pooling in (None, "prompt", "mean"))
            encoder = _as_saved(where, layered) if kept else None
            if encoder is not None and not layered and pooling not in (None, pooling_name(encoder)):
                raise UserError(
                    f"{str(name)!r} holds static vectors, which are averaged: leave pooling {pooling!r} out"
                )
            # A mean in which words have weights is the mean of that folder.
            own = () if encoder is None else (None, pooling_name(encoder).removeprefix("weighted_"))
            if encoder is None or pooling not in own or template is not None:
                encoder = _assemble(where, pooling or "cls", template or prompt.TEMPLATE)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot open {str(name)!r} as an encoder: {_first_line(error)}") from error
    for module in encoder:
        if isinstance(module, WordWeights):
            module.requires_grad_(False)  # which words count is given, not learned
    model = transformer(encoder)
    if model is not None:
        model.float()
        droppers.install(model)
    elif isinstance(encoder[0], StaticEmbedding):
        static.install(encoder[0].float())
    if max_length is not None and layered:  # static vectors read everything
        encoder.max_seq_length = max_length
    if dropout is not None:
        set_dropout(encoder, dropout)
    return encoder.eval()


def _as_saved(where: str | Path, layered: bool) -> SentenceTransformer:
    # In fp32 from the start: modules behind a transformer in fp16 would be rounded to it, and scored as that.
    kwargs = {"dtype": torch.float32, **_without_pooler(where)} if layered else {}
    return SentenceTransformer(str(where), device="cpu", model_kwargs=kwargs)


def _has_layers(where: str | Path, finished: bool) -> bool:
    """Tell a transformer from static vectors."""
    if not finished:
        return True
    found = load_file_path(str(where), "modules.json")
    modules = json.loads(Path(found).read_text(encoding="utf-8")) if found else []
    return not any(module["type"].endswith("StaticEmbedding") for module in modules)


def _without_pooler(where: str | Path) -> dict[str, object]:
    """Leave BERT's pooler out where the class allows: unused, often random, and random weights are never the same."""
    if Path(where).is_dir() and not (Path(where) / "config.json").is_file():
        return {}
    model = MODEL_MAPPING.get(type(AutoConfig.from_pretrained(str(where))), None)
    return {"add_pooling_layer": False} if isinstance(model, type) and _may_have_pooler(model) else {}


def _may_have_pooler(model: type[PreTrainedModel]) -> bool:
    return "add_pooling_layer" in signature(model).parameters


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers from drawing bars and load reports over ours; errors still get through."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _is_sentence_transformer(where: str | Path) -> bool:
    if Path(where).is_dir():
        return (Path(where) / "modules.json").is_file()
    return is_sentence_transformer_model(str(where))


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _refuse_what_is_no_encoder(where: str | Path) -> None:
    folder = Path(where)
    if folder.is_file():
        raise UserError(f"{folder} is a file: give the folder of the model, or a name on the hub")
    if folder.is_dir() and not any((folder / name).is_file() for name in ("config.json", "modules.json")):
        raise UserError(f"{folder} holds no encoder: expected a config.json or modules.json, as save_pretrained writes")
    if folder.is_dir() and not (folder / "config.json").is_file():
        return  # a sentence-transformers folder without a transformer, such as static vectors
    if not folder.is_dir() and (len(folder.parts) > 2 or folder.is_absolute()):
        raise UserError(f"base {str(where)!r} does not exist: give 'builtin', a folder, or a name on the hub")
    try:
        config = AutoConfig.from_pretrained(str(where))
    except (OSError, ValueError) as error:
        raise UserError(
            f"base {str(where)!r} is neither a folder nor a name that the hub answers to ({_first_line(error)}): "
            "give 'builtin', a folder, or a name on the hub"
        ) from error
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"{str(where)!r} is no encoder: its model type is {config.model_type!r}; "
            "give a bidirectional one, such as BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )


def _assemble(where: str | Path, pooling: str, template: str) -> SentenceTransformer:
    """Build a SentenceTransformer of stock modules that pools as asked."""
    by_layers = pooling in ("first_last", "first_last_paper", "top2")
    base = Transformer(
        str(where),
        model_kwargs={} if pooling == "cls_pooler" else _without_pooler(where),
        config_kwargs={"output_hidden_states": True} if by_layers else {},
    )
    width = base.get_embedding_dimension()
    modules: list[nn.Module] = [base]
    if by_layers:
        layers = base.model.config.num_hidden_layers
        start = {"first_last_paper": 0, "first_last": 1, "top2": layers - 1}[pooling]
        weights = torch.zeros(layers + 1 - start)
        weights[0] = weights[-1] = 1.0
        modules.append(WeightedLayerPooling(width, layers, start))
        modules[-1].register_parameter("layer_weights", nn.Parameter(weights, requires_grad=False))
    if pooling == "prompt":
        mask, vocabulary = base.tokenizer.mask_token, base.tokenizer.get_vocab()
        base.processor = prompt.wrap(base.tokenizer, template)
        words = [""] * max(base.model.config.vocab_size, 1 + max(vocabulary.values()))
        for word, number in vocabulary.items():
            words[number] = word
        # The mean over tokens of which the mask weighs 1 and every other 0 is the state of the mask, to the last bit.
        modules.append(WordWeights(words, {mask: 1.0}, unknown_word_weight=0.0))
    modules.append(Pooling(width, "cls" if pooling.startswith("cls") else "mean"))
    if pooling == "cls_pooler":
        _, loading = AutoModel.from_pretrained(str(where), output_loading_info=True)
        pooler = getattr(base.model, "pooler", None)
        if pooler is None or any("pooler" in key for key in loading["missing_keys"]):
            raise UserError(f"{str(where)!r} has no pretrained pooler: choose pooling 'cls' or 'mean'")
        dense = Dense(width, width, activation_function=nn.Tanh())
        dense.linear.load_state_dict(pooler.dense.state_dict())
        modules.append(dense)
    return SentenceTransformer(modules=modules, device="cpu")


def transformer(encoder: SentenceTransformer) -> PreTrainedModel | None:
    """Return the transformers model inside, or None where there is none (static vectors)."""
    return getattr(encoder[0], "model", None) if isinstance(encoder[0], Transformer) else None


def tokenizer(encoder: SentenceTransformer) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the transformers model, or of the static vectors, inside."""
    if isinstance(encoder[0], StaticEmbedding):
        return static.tokenizer(encoder[0])
    found: PreTrainedTokenizerBase = encoder.tokenizer
    return found


def pooling_name(encoder: SentenceTransformer) -> str:
    """Name the pooling, in the words of ``POOLINGS`` where it is one of them."""
    if isinstance(encoder[0], StaticEmbedding):
        return "mean"
    pools = [module for module in encoder if isinstance(module, Pooling)]
    if not pools:
        return "none"
    mode = pools[0].pooling_mode
    layered = [module for module in encoder if isinstance(module, WeightedLayerPooling)]
    if layered:
        start = layered[0].layer_start
        return {0: "first_last_paper", 1: "first_last"}.get(start, "top2")
    if any(isinstance(module, Dense) for module in encoder):
        return f"{mode}_pooler"
    if _prompt_weights(encoder) is not None:
        return "prompt"
    if any(isinstance(module, WordWeights) for module in encoder) and mode == "mean":
        return "weighted_mean"
    return mode if isinstance(mode, str) else "+".join(mode)


def _prompt_weights(encoder: SentenceTransformer) -> WordWeights | None:
    """Return the module that lets one word alone count, the mask of a prompt, if there is one."""
    weights = next((module for module in encoder if isinstance(module, WordWeights)), None)
    one = weights is not None and len(weights.word_weights) == 1 and not weights.unknown_word_weight
    return weights if one else None


def mask_id(encoder: SentenceTransformer) -> int | None:
    """Return the id of the mask token; a tokenizer with a prompt has one in what it gives and not among its tokens."""
    weights = _prompt_weights(encoder)
    if weights is None:
        found: int | None = tokenizer(encoder).mask_token_id
        return found
    return weights.vocab.index(next(iter(weights.word_weights)))


def template_length(encoder: SentenceTransformer) -> int:
    """Count the word pieces that a prompt puts around every text; they are part of any length, as [CLS] and [SEP] are.

    0 without a prompt.
    """
    return 0 if transformer(encoder) is None else prompt.length(tokenizer(encoder))


def embedding_width(encoder: SentenceTransformer) -> int:
    """Return D, the width of the encoder's sentence embeddings."""
    width = encoder.get_embedding_dimension()
    if width is None:
        raise UserError("the encoder does not say how wide its embeddings are: give it a pooling")
    return int(width)


def digest(encoder: SentenceTransformer) -> str:
    """Digest the modules, the weights and the tokenizer, so that vectors of one encoder never pass for another's."""
    found = hashlib.sha256(repr(encoder).encode())
    for name, tensor in encoder.state_dict().items():
        found.update(name.encode())
        found.update(tensor.cpu().contiguous().numpy().tobytes())
    backend = getattr(tokenizer(encoder), "backend_tokenizer", None)
    words = {} if backend is None else json.loads(backend.to_str())
    # How the last call cut and padded is the tokenizer's state, not its nature.
    found.update(json.dumps({**words, "truncation": None, "padding": None}).encode())
    return found.hexdigest()


# ---------------------------------------------------------------------------------------------------------------
# dropout


def dropout_rates(encoder: SentenceTransformer) -> dict[str, float]:
    """Return the highest rate over the ``hidden`` and over the ``attention`` sites; empty where there is no site."""
    rates: dict[str, float] = {}
    for site in droppers.sites(encoder):
        kind = "attention" if site.attention else "hidden"
        rates[kind] = max(rates.get(kind, 0.0), site.module.p)
    return rates


def set_dropout(encoder: SentenceTransformer, rate: float, attention: float | None = None) -> None:
    """Set the rate of every site, for good; ``attention`` differs from the rest where it is given."""
    for value in (rate, attention):
        if value is not None and not 0 <= value < 1:
            raise UserError(f"a dropout rate of {value} is impossible: give one from 0 up to, not including, 1")
    for site in droppers.sites(encoder):
        site.module.p = rate if attention is None or not site.attention else attention


@contextmanager
def dropout(encoder: SentenceTransformer, rate: float, attention: float | None = None) -> Iterator[None]:
    """Run ``encoder`` at dropout ``rate`` at every site until the block ends, then put its own rates back."""
    own = [(site.module, site.module.p) for site in droppers.sites(encoder)]
    try:
        set_dropout(encoder, rate, attention)
        yield
    finally:
        for module, p in own:
            module.p = p


@contextmanager
def dropout_rows(
    encoder: SentenceTransformer, rates: tuple[float, ...], attention: tuple[float, ...] | None = None
) -> Iterator[None]:
    """Give each of ``len(rates)`` equal, consecutive shares of the rows of a batch its own rate, in one forward pass.

    Raises:
        UserError: the encoder runs under an attention that takes one rate for all rows.
    """
    model = transformer(encoder)
    if model is not None and model._can_set_attn_implementation():
        active = model.config._attn_implementation
        if active != droppers.ATTENTION:
            raise UserError(f"rates by row need the attention {droppers.ATTENTION!r}, not {active!r}: use two passes")
    steered = [(site.module, site.attention) for site in droppers.sites(encoder)]
    try:
        for module, in_attention in steered:
            assert isinstance(module, droppers.Dropout)
            module.rows = attention if attention is not None and in_attention else rates
        yield
    finally:
        for module, _ in steered:
            if isinstance(module, droppers.Dropout):
                module.rows = None


def probe(encoder: SentenceTransformer, text: str) -> list[int]:
    """Return token ids to try an encoder with: those of a text, or static vectors' longest, whatever their language."""
    if isinstance(encoder[0], StaticEmbedding):
        lengths = encoder[0].embedding.weight.detach().norm(dim=1)
        return lengths.topk(min(8, len(lengths))).indices.tolist()
    return encoder.tokenizer(text)["input_ids"]


def require_dropout(encoder: SentenceTransformer) -> None:
    """Refuse an encoder whose dropout ``dropout`` cannot reach everywhere, by the name of its family.

    Probed, not looked up: with every site at 0 a pass in training mode must equal one in evaluation mode; with only the
    attention sites on, it must differ; and likewise with only the hidden ones on.

    Raises:
        UserError: a part of the dropout is out of reach.
    """
    model = transformer(encoder)
    family = getattr(getattr(model, "config", None), "model_type", type(encoder[0]).__name__)
    kinds = {site.attention for site in droppers.sites(encoder)}
    if isinstance(encoder[0], StaticEmbedding):
        return  # of word dropout alone, which is ours
    advice = "this method needs an encoder like BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
    if kinds != {True, False}:
        missing = "attention" if False in kinds else "hidden-state" if True in kinds else "any"
        raise UserError(f"the {missing} dropout of a {family!r} encoder cannot be set from outside: {advice}")
    tokens = collate(encoder, [probe(encoder, "the quick brown fox jumps over the lazy dog")])
    training = encoder.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = embed(encoder.eval(), tokens)
        encoder.train()
        with dropout(encoder, 0.0):
            still = torch.equal(embed(encoder, tokens), plain)
        with dropout(encoder, 0.0, attention=0.5):
            attention = not torch.allclose(embed(encoder, tokens), plain)
        with dropout(encoder, 0.5, attention=0.0):
            hidden = not torch.allclose(embed(encoder, tokens), plain)
    encoder.train(training)
    if not (still and attention and hidden):
        which = "some" if not still else "attention" if not attention else "hidden-state"
        raise UserError(f"{which} dropout of a {family!r} encoder escapes its dropout modules: {advice}")


# ---------------------------------------------------------------------------------------------------------------
# embedding


def collate(encoder: SentenceTransformer, rows: Sequence[Sequence[int]]) -> Tokens:
    """Pad rows of token ids, special tokens included, to the longest of them."""
    pad = _padding(encoder)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    ids = torch.full(mask.shape, pad, dtype=torch.long)
    ids[mask] = torch.tensor([token for row in rows for token in row], dtype=torch.long)
    return {"input_ids": ids.to(encoder.device), "attention_mask": mask.long().to(encoder.device)}


def _padding(encoder: SentenceTransformer) -> int:
    """Return the id of padding; static vectors never look at it."""
    return 0 if isinstance(encoder[0], StaticEmbedding) else (encoder.tokenizer.pad_token_id or 0)


def embed(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B D"]:
    """Encode one batch of tokens, with gradients; fp32 whatever the encoder computes in."""
    if isinstance(encoder[0], StaticEmbedding):
        features = {"sentence_embedding": static.embed(encoder[0], tokens["input_ids"], tokens["attention_mask"])}
        for module in list(encoder)[1:]:
            features = module(features)
        return features["sentence_embedding"]
    # A copy, because the encoder's modules write their outputs into the dict they are given.
    embeddings: Tensor = encoder(dict(tokens))["sentence_embedding"]
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float()


def embed_columns(
    encoder: SentenceTransformer, batch: Mapping[str, Tokens], columns: Sequence[str]
) -> tuple[Float[Tensor, "B D"], ...]:
    """Encode several columns of a batch in one forward pass; a column named twice gets two dropout masks."""
    if len(set(columns)) == 1:
        every = {name: column.repeat(len(columns), 1) for name, column in batch[columns[0]].items()}
    else:
        every = _stacked([batch[name] for name in columns], _padding(encoder))
    return embed(encoder, every).split([len(batch[name]["input_ids"]) for name in columns])


def _stacked(columns: Sequence[Tokens], pad: int) -> Tokens:
    """Put the rows of all columns below each other, padded to the longest."""
    longest = max(column["input_ids"].shape[1] for column in columns)

    def widened(column: Tokens, name: str) -> Tensor:
        missing = longest - column[name].shape[1]
        return F.pad(column[name], (0, missing), value=pad if name == "input_ids" else 0)

    return {name: torch.cat([widened(column, name) for column in columns]) for name in columns[0]}


def embed_tokens(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B T D"]:
    """Return the last hidden state of every token, with gradients; nothing is pooled."""
    # The transformer alone: what pools over layers writes its own mixture over the same key.
    states: Tensor = encoder[0](dict(tokens))["token_embeddings"]
    return states


def embed_with_tokens(
    encoder: SentenceTransformer, tokens: Tokens
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B T D"]]:
    """Return the embedding of every text, and the last hidden state of its every token, of one forward pass."""
    features = encoder[0](dict(tokens))
    states: Tensor = features["token_embeddings"]
    for module in list(encoder)[1:]:
        features = module(features)
    embeddings: Tensor = features["sentence_embedding"]
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float(), states


def embed_inputs(encoder: SentenceTransformer, tokens: Tokens) -> Float[Tensor, "B T D"]:
    """Return what the transformer's layers start from: word and position embeddings, normalized, with dropout.

    Raises:
        UserError: the family keeps its embeddings elsewhere than BERT and its relatives do.
    """
    model = transformer(encoder)
    layer = getattr(model, "embeddings", None)
    if model is None or layer is None:
        family = getattr(getattr(model, "config", None), "model_type", type(encoder[0]).__name__)
        raise UserError(
            f"a {family!r} encoder has no embedding layer of its own to take inputs from: "
            "give an encoder like BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )
    states: Tensor = layer(input_ids=tokens["input_ids"])
    projection = getattr(model, "embeddings_project", None)  # ELECTRA, where words are narrower than states
    return states if projection is None else projection(states)


def by_length(tokens: Tokens, waste: float = 0.2) -> Iterator[tuple[Int[Tensor, " N"], Tokens]]:
    """Part a batch into shares of rows of like length, longest first, each cut to its longest row.

    Args:
        waste: a row joins a share if it is at most so much shorter than the longest one there.

    Yields:
        the places of the rows in the batch, and the rows.
    """
    lengths = tokens["attention_mask"].sum(1)
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        rows = order[start:]
        rows = rows[lengths[rows] >= (1 - waste) * longest]
        yield rows, {name: column[rows, :longest] for name, column in tokens.items()}
        start += len(rows)


def encode(
    encoder: SentenceTransformer, texts: Sequence[str], *, precision: str = "auto", progress: bool = False
) -> NDArray[np.float32]:
    """Encode texts into an (N, D) array, in their order, without gradients and without dropout.

    Sorted by length and cut into batches of equal numbers of tokens, so that hardly anything is computed on padding.

    Args:
        precision: "fp32", "bf16", or "auto" for bf16 where this machine is faster at it.
    """
    if transformer(encoder) is None:
        return np.asarray(encoder.encode(list(texts), show_progress_bar=progress), dtype=np.float32)

    def pooled(tokens: Tokens) -> list[Tensor]:
        # What follows the layers is cheap: in fp32, whatever the layers computed in.
        features = {name: _widened(value) for name, value in encoder[0](dict(tokens)).items()}
        for module in list(encoder)[1:]:
            features = module(features)
        return [features["sentence_embedding"].float()]

    (embeddings,) = _encode(encoder, texts, pooled, 1, precision, progress)
    return embeddings


def _widened(value: Any) -> Any:  # noqa: ANN401 - a tensor, several of them, or what is none
    if isinstance(value, tuple | list):
        return type(value)(map(_widened, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def encode_poolings(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    poolings: Sequence[str],
    *,
    precision: str = "auto",
    progress: bool = False,
) -> dict[str, NDArray[np.float32]]:
    """Encode texts once and pool them in several ways, for training-free baselines.

    Raises:
        UserError: an unknown pooling, ``cls_pooler`` without a pooler in the base, or ``prompt`` without a prompt.
    """
    for name in poolings:
        if name not in POOLINGS:
            raise unknown("pooling", name, POOLINGS)
    model = transformer(encoder)
    if model is None:
        raise UserError("poolings are for encoders with layers: these are static vectors")
    mask_token = None if _prompt_weights(encoder) is None else mask_id(encoder)
    if "prompt" in poolings and mask_token is None:
        raise UserError("this encoder was opened without a prompt: open it with pooling='prompt'")

    def pooled(tokens: Tokens) -> list[Tensor]:
        output = model(**tokens, output_hidden_states=True)
        hidden, last, mask = output.hidden_states, output.last_hidden_state, tokens["attention_mask"]
        hole = mask if mask_token is None else tokens["input_ids"].eq(mask_token)
        return [pool(name, hidden, last, hole if name == "prompt" else mask, model) for name in poolings]

    arrays = _encode(encoder, texts, pooled, len(poolings), precision, progress)
    return dict(zip(poolings, arrays, strict=True))


def pool(
    name: str,
    hidden: Sequence[Float[Tensor, "B T D"]],
    last: Float[Tensor, "B T D"],
    mask: Tensor,
    model: PreTrainedModel,
) -> Float[Tensor, "B D"]:
    """Pool the hidden states of one batch; ``hidden[0]`` is the embedding layer, ``last`` the final output.

    Args:
        mask: 1 for every token; for ``prompt``, for the mask token of every text alone.
    """
    if name == "cls":
        return last[:, 0].float()
    if name == "cls_pooler":
        dense = getattr(getattr(model, "pooler", None), "dense", None)
        if dense is None:  # load() leaves it out unless it is asked for
            raise UserError("this encoder was opened without a pooler: open it with pooling='cls_pooler'")
        return torch.tanh(dense(last[:, 0])).float()
    states = {
        "mean": lambda: last.float(),
        "prompt": lambda: last.float(),
        "first_last": lambda: (hidden[1].float() + last.float()) / 2,
        "first_last_paper": lambda: (hidden[0].float() + last.float()) / 2,
        "top2": lambda: (hidden[-2].float() + last.float()) / 2,
    }[name]()
    weights = mask.unsqueeze(-1).float()
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


def _encode(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    pooled: Callable[[Tokens], list[Tensor]],
    outputs: int,
    precision: str,
    progress: bool,
) -> list[NDArray[np.float32]]:
    """Run ``pooled`` over all texts in batches of like length; return its outputs in the order of the texts."""
    if precision not in hardware.PRECISIONS:
        raise unknown("precision", precision, hardware.PRECISIONS)
    device = encoder.device.type
    low = precision == "bf16" or (precision == "auto" and hardware.has_fast_bf16(device))
    rows: list[list[int]] = []
    for start in range(0, len(texts), 10_000):
        chunk = list(texts[start : start + 10_000])
        rows += encoder.tokenizer(chunk, truncation=True, max_length=max_length(encoder))["input_ids"]
    budget = _TOKENS_A_BATCH if device == "cpu" else _TOKENS_ELSEWHERE
    arrays: list[NDArray[np.float32]] = []
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode(), _inference(encoder, low):
            for batch in tqdm(list(_by_tokens(rows, budget)), desc="encode", unit="batch", disable=not progress):
                vectors = pooled(collate(encoder, [rows[i] for i in batch]))
                if not arrays:
                    arrays = [np.empty((len(rows), v.shape[1]), dtype=np.float32) for v in vectors]
                for array, vector in zip(arrays, vectors, strict=True):
                    array[batch] = vector.cpu().numpy()
    finally:
        encoder.train(training)
    return arrays or [np.empty((0, embedding_width(encoder)), dtype=np.float32)] * outputs


@contextmanager
def _inference(encoder: SentenceTransformer, low: bool) -> Iterator[None]:
    """Prepare the layers for many passes without gradients, in bf16 or fp32."""
    device, model = encoder.device.type, transformer(encoder)
    if model is not None and fused.fits(model, device):
        with fused.products(model, torch.bfloat16 if low else torch.float32):
            yield
        return
    weights = hardware.bf16_weights(encoder[0]) if low else nullcontext()
    with weights, torch.autocast(device, torch.bfloat16, enabled=low):
        yield


def _by_tokens(rows: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Cut the rows, longest first, into batches of at most ``budget`` tokens, or of one row."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    start = 0
    while start < len(order):
        size = max(1, budget // len(rows[order[start]]))
        yield order[start : start + size]
        start += size


def max_length(encoder: SentenceTransformer) -> int:
    """Return how many word pieces, special tokens included, the encoder reads of a text."""
    return UNLIMITED if encoder.max_seq_length == math.inf else int(encoder.max_seq_length or 512)


# ---------------------------------------------------------------------------------------------------------------
# masked language modelling


class MLMHead(nn.Module):
    """Guess words from hidden states: dense, activation, LayerNorm, then a projection that the encoder lends.

    The projection is tied to the encoder's word embeddings; it is given at each call, so that whoever owns the head
    owns no weight of the encoder.
    """

    def __init__(self, dense: nn.Module, activation: nn.Module, norm: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.bias = nn.Parameter(bias.detach().clone())  # (V,)

    def forward(self, states: Float[Tensor, "N D"], words: Float[Tensor, "V E"]) -> Float[Tensor, "N V"]:
        """Return logits over the vocabulary for hidden states; ``words`` is ``word_embeddings(encoder)``."""
        transformed = self.norm(self.activation(self.dense(states)))  # (N, E)
        logits = F.linear(transformed.to(words.dtype), words, self.bias.to(words.dtype))
        return logits if logits.dtype == torch.float64 else logits.float()

    def loss(
        self, states: Float[Tensor, "N D"], words: Float[Tensor, "V E"], labels: Int[Tensor, " N"]
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy; a zero that keeps the graph where there is nothing to guess."""
        transformed = self.norm(self.activation(self.dense(states)))  # (N, E)
        return vocabulary_loss(transformed, words, self.bias, labels) / max(1, len(labels))


def mlm_head(encoder: SentenceTransformer) -> MLMHead:
    """Copy the masked-LM head out of the checkpoint that the encoder was opened from; warn where it holds none.

    Raises:
        UserError: no checkpoint, or a head of another shape than ``MLMHead``.
    """
    model = transformer(encoder)
    if model is None:
        raise UserError("a masked-LM head needs an encoder with layers: these are static vectors")
    where = model.name_or_path or ""
    try:
        with quietly():
            whole, loading = AutoModelForMaskedLM.from_pretrained(where, dtype=torch.float32, output_loading_info=True)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot open {where!r} for its masked-LM head: {_first_line(error)}") from error
    dense, norm, *activation = _head_modules(whole)
    if any(not key.startswith(f"{whole.base_model_prefix}.") for key in loading["missing_keys"]):
        warnings.warn(f"{where!r} holds no masked-LM head: a fresh one, from random weights, is trained", stacklevel=2)
    return MLMHead(dense, activation[0] if activation else nn.GELU(), norm, whole.get_output_embeddings().bias)


def masked_lm(encoder: SentenceTransformer, head: MLMHead, start: str | Path) -> PreTrainedModel:
    """Return the masked LM that ``start`` names with the weights of an encoder and a head of its shape."""
    inner = transformer(encoder)
    assert inner is not None
    with quietly():
        whole = AutoModelForMaskedLM.from_pretrained(str(start))
    whole.base_model.load_state_dict(inner.state_dict())
    dense, norm, *_ = _head_modules(whole)
    dense.load_state_dict(head.dense.state_dict())
    norm.load_state_dict(head.norm.state_dict())
    whole.get_output_embeddings().bias.data.copy_(head.bias)
    return whole


def _head_modules(whole: PreTrainedModel) -> list[nn.Module]:
    """Return dense layer, LayerNorm and, where it is a module, activation of a masked LM's head."""
    modules = dict(whole.named_modules())
    names = next((names for names in _MLM_HEADS if modules.keys() >= set(names)), None)
    output = whole.get_output_embeddings()
    if names is None or output.weight is not whole.get_input_embeddings().weight:
        raise UserError(
            f"the masked-LM head of {whole.name_or_path!r} ({whole.config.model_type}) is not one dense layer and a "
            "projection tied to the word embeddings: give an encoder like BERT, RoBERTa, DistilBERT, MPNet or ELECTRA"
        )
    return [modules[name] for name in names]


def word_embeddings(encoder: SentenceTransformer) -> Float[Tensor, "V E"]:
    """Return the encoder's word-embedding matrix itself, for gradients to reach it."""
    model = transformer(encoder)
    assert model is not None
    return model.get_input_embeddings().get_parameter("weight")


def mask_tokens(encoder: SentenceTransformer, tokens: Tokens, probability: float) -> tuple[Tokens, Bool[Tensor, "B T"]]:
    """Hide tokens for the encoder to guess: return the masked tokens, and where they have to be guessed.

    Every token but special ones and padding is chosen with ``probability``; of the chosen, 80 % become the mask token,
    10 % a random one of the whole vocabulary, and 10 % stay.  Drawn on the CPU from torch's global generator.

    Raises:
        UserError: the tokenizer has no mask token.

    Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """
    tokenizer, ids, hole = encoder.tokenizer, tokens["input_ids"], mask_id(encoder)
    if hole is None:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise UserError(f"the tokenizer of {name!r} has no mask token: masked language modelling needs one")
    special = torch.tensor([*tokenizer.all_special_ids, hole], device=ids.device)
    chosen = (torch.rand(ids.shape) < probability).to(ids.device)
    chosen &= tokens["attention_mask"].bool() & ~torch.isin(ids, special)
    fate = torch.rand(ids.shape).to(ids.device)
    random = torch.randint(len(tokenizer), ids.shape).to(ids.device)
    masked = ids.masked_fill(chosen & (fate < 0.8), hole)
    masked = torch.where(chosen & (fate >= 0.9), random, masked)
    return {**tokens, "input_ids": masked}, chosen


# ---------------------------------------------------------------------------------------------------------------
# saving


def save(encoder: SentenceTransformer, folder: Path, *, head: nn.Linear | None = None) -> None:
    """Save as a plain folder of stock modules that ``SentenceTransformer(folder)`` opens without us.

    Args:
        head: exported behind the pooling with a tanh, for methods that keep their head.
    """
    modules = list(encoder)
    if head is not None:
        dense = Dense(head.in_features, head.out_features, activation_function=nn.Tanh())
        dense.linear.load_state_dict({name: value.detach().clone() for name, value in head.state_dict().items()})
        modules.append(dense)
    with quietly():
        SentenceTransformer(modules=modules, device=str(encoder.device)).save(str(folder), create_model_card=False)
    settings = folder / "sentence_bert_config.json"
    model = transformer(encoder)
    if model is not None and settings.is_file() and getattr(model, "pooler", None) is None:
        # So that whoever opens the folder is not told of missing pooler weights, nor given random ones.
        content = json.loads(settings.read_text(encoding="utf-8"))
        if _may_have_pooler(type(model)):
            content["model_kwargs"] = {**content.get("model_kwargs", {}), "add_pooling_layer": False}
        settings.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")
