"""From the states of tokens to one vector a text: the poolings, their modules and their names."""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import torch
from jaxtyping import Float
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    Pooling,
    StaticEmbedding,
    Transformer,
    WeightedLayerPooling,
    WordWeights,
)
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedModel

from selfsent.encoder import prompt
from selfsent.encoder.inspect import prompt_weights
from selfsent.errors import UserError

POOLINGS = ("cls", "cls_pooler", "first_last", "first_last_paper", "mean", "prompt", "top2")


def assemble(where: str | Path, pooling: str, template: str) -> SentenceTransformer:
    """Build a SentenceTransformer of stock modules that pools as asked."""
    by_layers = pooling in ("first_last", "first_last_paper", "top2")
    base = Transformer(
        str(where),
        model_kwargs={} if pooling == "cls_pooler" else without_pooler(where),
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
        base.processor = prompt.wrap_tokenizer(base.tokenizer, template)
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
    if prompt_weights(encoder) is not None:
        return "prompt"
    if any(isinstance(module, WordWeights) for module in encoder) and mode == "mean":
        return "weighted_mean"
    return mode if isinstance(mode, str) else "+".join(mode)


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


def without_pooler(where: str | Path) -> dict[str, object]:
    """Leave BERT's pooler out where the class allows: unused, often random, and random weights are never the same."""
    if Path(where).is_dir() and not (Path(where) / "config.json").is_file():
        return {}
    model = MODEL_MAPPING.get(type(AutoConfig.from_pretrained(str(where))), None)
    return {"add_pooling_layer": False} if isinstance(model, type) and may_have_pooler(model) else {}


def may_have_pooler(model: type[PreTrainedModel]) -> bool:
    """Tell whether a model class can be built with or without BERT's pooler."""
    return "add_pooling_layer" in signature(model).parameters
