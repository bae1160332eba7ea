"""Save an encoder as a plain folder of stock modules."""

import json
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from torch import nn

from selfsent.encoder.inspect import transformer_of
from selfsent.encoder.load import quietly
from selfsent.encoder.pooling import may_have_pooler


def save_encoder(encoder: SentenceTransformer, folder: Path, *, head: nn.Linear | None = None) -> None:
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
    model = transformer_of(encoder)
    if model is not None and settings.is_file() and getattr(model, "pooler", None) is None:
        # So that whoever opens the folder is not told of missing pooler weights, nor given random ones.
        content = json.loads(settings.read_text(encoding="utf-8"))
        if may_have_pooler(type(model)):
            content["model_kwargs"] = {**content.get("model_kwargs", {}), "add_pooling_layer": False}
        settings.write_text(json.dumps(content, indent=4) + "\n", encoding="utf-8")
