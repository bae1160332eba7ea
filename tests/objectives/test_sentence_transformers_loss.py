"""An objective gives sentence-transformers' trainer the loss that it gives ours; its weights are trained and saved."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from tiny import PROMPT, TEXTS

from selfsent.encoder.embed import collate
from selfsent.encoder.load import load_encoder
from selfsent.errors import ConfigurationError, EncoderError
from selfsent.objectives import registry
from selfsent.objectives.base import Examples
from selfsent.objectives.sentence_transformers_loss import ObjectiveLoss
from selfsent.training.trainer import Learner

POSITIVES = TEXTS[1:] + TEXTS[:1]


def tokenised(model, *columns):
    return [model.preprocess(list(column)) for column in columns]


def test_a_third_column_is_refused_and_not_dropped(bert):
    model = load_encoder(bert, pooling="cls").train()
    with pytest.raises(ConfigurationError, match="3 columns of texts were given"):
        ObjectiveLoss(model, "simcse")(tokenised(model, TEXTS, POSITIVES, TEXTS), torch.zeros(len(TEXTS)))


@pytest.mark.parametrize("method", ["simcse", "scd", "whitenedcse", "simcse+scd", "denosent"])
@pytest.mark.parametrize("paired", [False, True])
def test_the_loss_is_that_of_our_trainer(method, paired, bert):
    how = {"pooling": "prompt", "template": PROMPT} if method == "denosent" else {"pooling": "cls"}
    model = load_encoder(bert, max_length=20, **how).train()
    torch.manual_seed(1)
    loss = ObjectiveLoss(model, method)
    torch.manual_seed(1)
    objective = registry.plan_objective(method, {}).build(model)
    rows = [model.tokenizer(list(texts))["input_ids"] for texts in (TEXTS, POSITIVES)]
    examples = Examples(rows[0], rows[1] if paired else None, loss_draw(loss))
    batch = {name: collate(model, column) for name, column in objective.views(examples).items()}
    torch.manual_seed(2)
    ours = Learner(model, objective, "fp32")(batch)
    torch.manual_seed(2)
    theirs = loss(tokenised(model, TEXTS, *[POSITIVES] * paired), torch.zeros(len(TEXTS)))
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(theirs[name], ours[name], rtol=0, atol=0)


def loss_draw(loss):
    return lambda i: np.random.default_rng([loss.seed, 1, i])


def test_a_model_that_we_did_not_open_gets_dropout_and_two_different_views(bert):
    model = SentenceTransformer(str(bert), device="cpu").train()
    loss = ObjectiveLoss(model, "simcse")
    (terms,) = loss(tokenised(model, TEXTS)).values()
    assert terms.requires_grad
    assert loss.objective.figures()["view_cosine"] < 0.9999


def test_their_trainer_trains_the_head_and_saves_what_opens(bert, tmp_path):
    model = load_encoder(bert, pooling="cls")
    loss = ObjectiveLoss(model, "simcse", ["eval_head=true"])
    before = {name: value.clone() for name, value in loss.objective.state_dict().items()}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    data = Dataset.from_dict({"text": TEXTS * 2})
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss).train()
    after = loss.objective.state_dict()
    assert all(not torch.equal(before[name], after[name]) for name in before)
    folder = loss.save(tmp_path / "model")
    saved = load_encoder(folder)
    assert [type(module).__name__ for module in saved] == ["Transformer", "Pooling", "Dense", "Normalize"]
    fresh = ObjectiveLoss(load_encoder(bert, pooling="cls"), "simcse", ["eval_head=true"])
    fresh.restore(folder)
    assert all(torch.equal(fresh.objective.state_dict()[name], after[name]) for name in after)


def test_a_folder_of_something_else_is_not_replaced(bert, tmp_path):
    loss = ObjectiveLoss(load_encoder(bert), "simcse")
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigurationError, match="exists: name another folder"):
        loss.save(tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("notes", "mine")]
    assert loss.save(tmp_path / "new") == loss.save(tmp_path / "new")


def test_static_vectors_are_read_from_one_long_row():
    model = load_encoder("builtin-static").train()
    loss = ObjectiveLoss(model, "simcse", ["head=false"])
    (term,) = loss(tokenised(model, TEXTS)).values()
    assert torch.isfinite(term)


def test_what_cannot_work_is_refused(bert, tmp_path):
    model = load_encoder(bert)
    with pytest.raises(ConfigurationError, match="whole documents"):
        ObjectiveLoss(model, "declutr")
    with pytest.raises(ConfigurationError, match="temprature"):
        ObjectiveLoss(model, "simcse", ["temprature=1"])
    wrapped = ObjectiveLoss(model, "simcse")
    wrapped.model = torch.nn.DataParallel(model)  # as the trainer does on several GPUs
    with pytest.raises(ConfigurationError, match="in one process on one device"):
        wrapped([])
    with pytest.raises(EncoderError, match="no weights of this objective"):
        ObjectiveLoss(model, "simcse").restore(tmp_path)
