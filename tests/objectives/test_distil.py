"""Distillation: the loss by slow loops, and a teacher that is neither trained nor saved."""

import math

import numpy as np
import pytest
import torch
from tiny import TEXTS, make_base
from torch.nn import functional as F

from selfsent.encoder.embed import collate, embed
from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError, ResumeError
from selfsent.functional import similarity_matching
from selfsent.objectives.distil import Distil


def rows(seed, count=7, width=5):
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, width)), dtype=torch.float64)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def shares(vectors, i, tau):
    """The distribution of row i over the other rows, by the definition."""
    cosines = {j: cosine(vectors[i], vectors[j]) for j in range(len(vectors)) if j != i}
    total = sum(math.exp(value / tau) for value in cosines.values())
    return {j: math.exp(value / tau) / total for j, value in cosines.items()}


def slow_matching(student, teacher, tau, teacher_tau):
    """The loss of every row over all others."""
    loss = 0.0
    for i in range(len(student)):
        p, q = shares(teacher, i, teacher_tau), shares(student, i, tau)
        loss += sum(p[j] * (math.log(p[j]) - math.log(q[j])) for j in p)
    return loss / len(student)


@pytest.mark.parametrize("taus", [(0.1, 0.1), (0.5, 0.05), (1.0, 2.0)])
def test_the_loss_is_that_of_slow_loops_whatever_the_widths(taus):
    student, teacher = rows(0), rows(1, width=9)
    expected = slow_matching(student.tolist(), teacher.tolist(), *taus)
    assert expected > 1e-3
    assert similarity_matching(student, teacher, *taus).item() == pytest.approx(expected, rel=1e-5)


def test_no_gradient_goes_to_the_teacher():
    student, teacher = rows(0).requires_grad_(), rows(1).requires_grad_()
    similarity_matching(student, teacher, 0.5, 0.2).backward()
    assert student.grad.any()
    assert teacher.grad is None


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("teacher"), "distilbert", seed=3)


def make(encoder, teacher, **changes):
    return Distil(Distil.Config(teacher=str(teacher), **changes), encoder)


def step(objective, encoder, batch):
    columns = objective.columns(batch)
    views = tuple(embed(encoder, batch[name]) for name in columns)
    return sum(objective.combine(views, encoder, batch).values()), views


def test_a_teacher_is_required(encoder):
    with pytest.raises(ConfigurationError, match=r"distil needs a teacher: --set objective\.teacher=FOLDER"):
        Distil(Distil.Config(), encoder)


@pytest.mark.parametrize("tidied", [True, False], ids=["transformers joins", "tokenizers joins"])
def test_the_loss_of_a_batch_is_that_of_the_teacher_s_own_vectors(encoder, teacher, batch, tidied, monkeypatch):
    monkeypatch.setattr(encoder.tokenizer, "clean_up_tokenization_spaces", tidied)
    objective = make(encoder.eval(), teacher, temperature=0.3, teacher_temperature=0.2)
    with torch.no_grad():
        found, views = step(objective, encoder, batch)
    expected = slow_matching(views[0].tolist(), encode(load_encoder(teacher), TEXTS).tolist(), 0.3, 0.2)
    assert found.item() == pytest.approx(expected, rel=1e-3)


def test_texts_and_positives_are_matched_together(encoder, teacher, batch):
    objective = make(encoder.eval(), teacher, temperature=0.3, teacher_temperature=0.2)
    both = {**batch, "positive": collate(encoder, encoder.tokenizer(TEXTS[::-1])["input_ids"])}
    with torch.no_grad():
        found, views = step(objective, encoder, both)
    taught = encode(load_encoder(teacher), TEXTS + TEXTS[::-1]).tolist()
    assert len(views) == 2
    assert found.item() == pytest.approx(slow_matching(torch.cat(views).tolist(), taught, 0.3, 0.2), rel=1e-3)


def test_training_moves_the_student_towards_the_teacher_and_the_teacher_not_at_all(encoder, teacher, batch):
    objective = make(encoder.eval(), teacher)
    before = [value.clone() for value in objective._teacher[0].state_dict().values()]
    optimizer = torch.optim.Adam([*encoder.parameters(), *objective.parameters()], lr=1e-2)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss, _ = step(objective, encoder, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert all(parameter.grad is None for parameter in objective._teacher[0].parameters())
    assert all(map(torch.equal, before, objective._teacher[0].state_dict().values()))
    assert 0 < objective.figures()["cosine_gap"] < 2


def test_a_template_around_the_student_s_texts_is_none_of_the_teacher_s(bert, teacher):
    encoder = load_encoder(bert, pooling="prompt", template="she reads [X] about the [MASK] book")
    objective = make(encoder, teacher)
    taught = objective._taught(collate(encoder, encoder.tokenizer(TEXTS)["input_ids"]), encoder)
    expected = torch.from_numpy(encode(load_encoder(teacher), TEXTS))
    torch.testing.assert_close(taught, F.normalize(expected, dim=1), atol=1e-5, rtol=0)


def test_of_the_teacher_a_checkpoint_holds_what_tells_it_from_another(encoder, teacher, tmp_path):
    objective = make(encoder, teacher)
    assert list(objective.parameters()) == []
    (digest,) = objective.state_dict().values()
    assert digest.numel() < 100
    make(encoder, teacher).load_state_dict(objective.state_dict())
    other = make(encoder, make_base(tmp_path, "distilbert", seed=4))
    with pytest.raises(ResumeError, match=r"the teacher .* has changed since the run was stopped"):
        other.load_state_dict(objective.state_dict())


def test_the_queue_brings_the_texts_of_earlier_batches_as_both_saw_them(encoder, teacher, batch):
    objective = make(encoder.eval(), teacher, queue=len(TEXTS)).train()
    other = {"text": collate(encoder, encoder.tokenizer([text.upper() + " again" for text in TEXTS])["input_ids"])}
    texts = [encoder.tokenizer.decode(row, skip_special_tokens=True) for row in other["text"]["input_ids"]]
    taught = F.normalize(torch.from_numpy(encode(load_encoder(teacher), texts)))
    with torch.no_grad():
        _, earlier = step(objective, encoder, other)
        torch.testing.assert_close(objective.students.rows(), earlier[0])
        torch.testing.assert_close(F.normalize(objective.teachers.rows()), taught, rtol=1e-4, atol=1e-5)
        queued = objective.students.rows().clone(), taught
        loss, now = step(objective, encoder, batch)
    expected = similarity_matching(now[0], torch.from_numpy(encode(load_encoder(teacher), TEXTS)), 0.05, 0.05, queued)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-3)
    parts = {f"{name}.{part}" for name in ("students", "teachers") for part in ("ring", "added")}
    assert set(objective.state_dict()) == parts | {"_extra_state"}  # of the teacher, its digest


def test_the_queue_stands_still_outside_training(encoder, teacher, batch):
    objective = make(encoder.eval(), teacher, queue=16).eval()
    with torch.no_grad():
        losses = [step(objective, encoder, batch)[0].item() for _ in range(2)]
    assert losses[0] == losses[1]
    assert len(objective.students.rows()) == 0


def test_two_encoders_side_by_side_may_teach(encoder, teacher, batch, bert, tmp_path):
    pair = join_encoders([load_encoder(bert), load_encoder(teacher)], (0.4, 0.6))
    save_encoder(pair, tmp_path / "pair")
    with torch.no_grad():
        found, views = step(make(encoder.eval(), tmp_path / "pair", temperature=0.3), encoder, batch)
    expected = slow_matching(views[0].tolist(), encode(pair, TEXTS).tolist(), 0.3, 0.05)
    assert found.item() == pytest.approx(expected, rel=1e-3)
