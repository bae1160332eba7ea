"""Masked language modelling: the head, its checkpoint, and the masking of tokens."""

import warnings
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForMaskedLM, PreTrainedModel

from selfsent.encoder.assemble import quietly
from selfsent.encoder.batches import Tokens
from selfsent.encoder.checks import require_loaded
from selfsent.encoder.folder import CLOSED, one_sentence
from selfsent.encoder.inspect import LIKE_BERT, mask_id, transformer_of
from selfsent.errors import EncoderError
from selfsent.functional import vocabulary_loss
from selfsent.runtime import distributed

_MLM_HEADS = (  # the dense layer, LayerNorm and activation of a head; no activation means gelu
    tuple(f"cls.predictions.transform.{name}" for name in ("dense", "LayerNorm", "transform_act_fn")),  # BERT
    ("lm_head.dense", "lm_head.layer_norm"),  # RoBERTa, XLM-R, MPNet
    ("vocab_transform", "vocab_layer_norm", "activation"),  # DistilBERT
    ("head.dense", "head.norm", "head.act"),  # ModernBERT
    ("predictions.dense", "predictions.LayerNorm", "predictions.activation"),  # ALBERT
    tuple(f"cls.predictions.transform.{name}" for name in ("dense", "layer_norm", "transform_act_fn")),  # NomicBERT
    tuple(f"generator_predictions.{name}" for name in ("dense", "LayerNorm", "activation")),  # ELECTRA's generator
)


class MLMHead(nn.Module):
    """Predict tokens from hidden states: dense, activation, LayerNorm, projection onto the vocabulary.

    The projection is tied to the encoder's word embeddings.  It is an argument of each call, so that the head's
    parameters hold no weight of the encoder.
    """

    def __init__(self, dense: nn.Module, activation: nn.Module, norm: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation
        self.norm = norm
        self.bias = nn.Parameter(bias.detach().clone())  # (V,)

    def forward(self, states: Float[Tensor, "N D"], words: Float[Tensor, "V E"]) -> Float[Tensor, "N V"]:
        """Return logits over the vocabulary; ``words`` is ``word_embeddings(encoder)``."""
        logits = F.linear(self._transform(states).to(words.dtype), words, self.bias.to(words.dtype))
        return logits if logits.dtype == torch.float64 else logits.float()

    def loss(
        self, states: Float[Tensor, "N D"], words: Float[Tensor, "V E"], labels: Int[Tensor, " N"]
    ) -> Float[Tensor, ""]:
        """Return the mean cross-entropy; zero, with a graph, where no token is masked.

        Of several processes each divides its sum by the mean number of labels.
        """
        return self.summed_loss(states, words, labels)[0] / distributed.here().mean_count(len(labels))

    def summed_loss(
        self, states: Float[Tensor, "N D"], words: Float[Tensor, "V E"], labels: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
        """Return the summed cross-entropy, and how many labels are predicted right."""
        return vocabulary_loss(self._transform(states), words, self.bias, labels)

    def _transform(self, states: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
        return self.norm(self.activation(self.dense(states)))


def load_mlm_head(encoder: SentenceTransformer) -> MLMHead:
    """Copy the masked-LM head of the checkpoint that the encoder was loaded from; warn where it holds none."""
    model = transformer_of(encoder)
    if model is None:
        raise EncoderError(
            "a masked-LM head needs an encoder with layers; static vectors are trained with objective.mlm_weight=0"
        )
    where = model.name_or_path or ""
    with quietly(), one_sentence(where):
        whole, found = AutoModelForMaskedLM.from_pretrained(
            where, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **CLOSED
        )
    dense, norm, activation = _head_modules(whole)
    tied = whole.get_input_embeddings().weight
    own = {name for name, parameter in whole.named_parameters() if parameter is not tied}
    head = {name for name in own if not name.startswith(f"{whole.base_model_prefix}.")}
    fresh = head <= found["missing_keys"]
    require_loaded(where, whole, found, needed=lambda key: key in head and not fresh)
    if fresh:
        warnings.warn(f"{where!r} holds no masked-LM head: a fresh one, from random weights, is trained", stacklevel=2)
    return MLMHead(dense, activation, norm, whole.get_output_embeddings().bias)


def assemble_masked_lm(encoder: SentenceTransformer, head: MLMHead, start: str | Path) -> PreTrainedModel:
    """Return the masked LM that ``start`` names with the weights of an encoder and a head of its shape."""
    inner = transformer_of(encoder)
    assert inner is not None
    with quietly(), one_sentence(str(start)):
        whole = AutoModelForMaskedLM.from_pretrained(str(start), use_safetensors=True, **CLOSED)
    whole.base_model.load_state_dict(inner.state_dict())
    dense, norm, _ = _head_modules(whole)
    dense.load_state_dict(head.dense.state_dict())
    norm.load_state_dict(head.norm.state_dict())
    whole.get_output_embeddings().bias.data.copy_(head.bias)
    return whole


def _head_modules(whole: PreTrainedModel) -> list[nn.Module]:
    """Return the dense layer, the LayerNorm and the activation of a masked LM's head."""
    modules = dict(whole.named_modules())
    names = next((names for names in _MLM_HEADS if modules.keys() >= set(names)), None)
    output = whole.get_output_embeddings()
    if names is None or output.weight is not whole.get_input_embeddings().weight:
        raise EncoderError(
            f"the masked-LM head of {whole.name_or_path!r} ({whole.config.model_type}) is not one dense layer and a "
            f"projection tied to the word embeddings: give an encoder like {LIKE_BERT}"
        )
    return [*(modules[name] for name in names), nn.GELU()][:3]


def word_embeddings(encoder: SentenceTransformer) -> Float[Tensor, "V E"]:
    """Return the encoder's word-embedding matrix itself, not a copy, so that it gets gradients."""
    model = transformer_of(encoder)
    assert model is not None
    return model.get_input_embeddings().get_parameter("weight")


def mask_tokens(encoder: SentenceTransformer, tokens: Tokens, probability: float) -> tuple[Tokens, Bool[Tensor, "B T"]]:
    """Choose every token but special ones and padding with ``probability``; return them replaced, and the choice."""
    tokenizer, ids = encoder.tokenizer, tokens["input_ids"]
    special = torch.tensor([*tokenizer.all_special_ids, require_mask_id(encoder)], device=ids.device)
    chosen = (distributed.draw_rows(ids.shape) < probability).to(ids.device)
    chosen &= tokens["attention_mask"].bool() & ~torch.isin(ids, special)
    return replace_tokens(encoder, tokens, chosen), chosen


def replace_tokens(encoder: SentenceTransformer, tokens: Tokens, chosen: Bool[Tensor, "B T"]) -> Tokens:
    """Replace 80 % of the chosen tokens by the mask token and 10 % by a random one of the whole vocabulary.

    Drawn on the CPU from torch's global generator.  Source: Devlin et al. 2019, https://arxiv.org/abs/1810.04805.
    """
    ids = tokens["input_ids"]
    draw = distributed.draw_rows(ids.shape).to(ids.device)
    random = distributed.draw_rows(ids.shape, partial(torch.randint, len(encoder.tokenizer))).to(ids.device)
    masked = ids.masked_fill(chosen & (draw < 0.8), require_mask_id(encoder))
    return {**tokens, "input_ids": torch.where(chosen & (draw >= 0.9), random, masked)}


def require_mask_id(encoder: SentenceTransformer) -> int:
    """Return the id of the mask token, or refuse a tokenizer without one."""
    number = mask_id(encoder)
    if number is None:
        name = encoder.tokenizer.name_or_path or type(encoder.tokenizer).__name__
        raise EncoderError(f"the tokenizer of {name!r} has no mask token: masked language modelling needs one")
    return number
