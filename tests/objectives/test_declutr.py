"""DeCLUTR against the authors' code, its statistics, and its definition."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import make_examples

from selfsent.encoder.embed import collate, embed, split_by_length
from selfsent.encoder.load import load_encoder
from selfsent.errors import UserError
from selfsent.functional import nt_xent
from selfsent.objectives.base import Examples
from selfsent.objectives.declutr import DeCLUTR, draw_anchors, draw_positive
from selfsent.training.optimizer import slanted_triangular

PLACEMENTS = ("any", "subsuming", "adjacent")
SMALL = {"max_length": 20, "min_length": 4}
DTYPES = {"f64": (torch.float64, 1e-9, 1e-9), "f32": (torch.float32, 1e-5, 2e-6)}


def make(encoder, **changes):
    return DeCLUTR(DeCLUTR.Config(**changes), encoder)


def batch_of(objective, encoder, rows):
    views = objective.views(make_examples(objective, rows))
    return {name: collate(encoder, view) for name, view in views.items()}


# spans


@given(
    anchors=st.integers(1, 4),
    room=st.floats(0, 1),
    shortest=st.integers(1, 40),
    more=st.integers(2, 100),
    placement=st.sampled_from(PLACEMENTS),
    seed=st.integers(0, 2**32 - 1),
)
def test_spans_lie_in_the_document_and_positives_at_their_anchor(anchors, room, shortest, more, placement, seed):
    longest = shortest + more
    length = round(2 * anchors * longest * (1 + 3 * room))
    draw = np.random.default_rng(seed)
    spans = draw_anchors(length, anchors, shortest, longest, draw)
    assert len(spans) == anchors
    for start, end in spans:
        assert 0 <= start < end <= length
        assert shortest <= end - start <= longest
        for _ in range(4):
            first, last = draw_positive(length, (start, end), shortest, longest, draw, placement)
            assert 0 <= first < last <= length
            assert shortest <= last - first <= longest
            assert last >= start
            assert first <= end
            if placement == "subsuming":
                assert start <= first
                assert last <= end
            if placement == "adjacent":
                assert last == start or first == end


def test_a_touching_span_may_start_where_the_document_does():
    draw = np.random.default_rng(0)
    assert draw_positive(12, (4, 12), 4, 4, draw, "adjacent") == (0, 4)  # the only place there is


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("length", [2048, 5000])
def test_spans_have_the_statistics_of_the_authors_code(golden, length, placement):
    values, draw = golden("declutr_spans"), np.random.default_rng(1)
    prefix = f"n{length}_A2_P2_lmax512_lmin32_{placement}_"
    drawn = [draw_anchors(length, 2, 32, 512, draw) for _ in range(8_000)]
    anchors = np.array(drawn)  # (8000, A, 2)
    positives = np.array(
        [[[draw_positive(length, a, 32, 512, draw, placement) for _ in range(2)] for a in each] for each in drawn]
    )  # (8000, A, P, 2)
    start, end = anchors[:, :, None, 0], anchors[:, :, None, 1]
    first, last = positives[..., 0], positives[..., 1]

    def close(name, actual, tolerance):
        expected, spread = values[prefix + name], values[f"{prefix}{name}_spread"]
        assert (np.abs(actual - expected) <= tolerance(spread)).all(), (name, actual, expected)

    def tokens(spread):
        return 3 * spread[:2] + 1

    for name, actual in {
        "anchor_len": end - start,
        "positive_len": last - first,
        "start_offset": first - start,
        "start_within_block": start % 512,
    }.items():
        expected, spread = values[prefix + name][:2], values[f"{prefix}{name}_spread"]
        assert (np.abs([actual.mean(), actual.std()] - expected) <= tokens(spread)).all(), name

    touching = (last == start) | (first == end)
    inside = (first >= start) & (last <= end)
    around = (first <= start) & (last >= end) & (last - first > end - start)
    overlapping = ~touching & ~inside & ~around
    shares = [np.mean(x) for x in (touching, overlapping, inside & ~touching, around & ~touching)]
    close("shares", np.array([*shares, 0.0]), lambda spread: 2 * spread + 0.004)
    blocks = values[f"{prefix}block_share_by_draw_order"].shape[1]
    by_order = [np.bincount(np.minimum(anchors[:, i, 0] // 512, blocks - 1), minlength=blocks) / 8_000 for i in (0, 1)]
    close("block_share_by_draw_order", np.array(by_order), lambda spread: 2 * spread + 0.01)


def test_a_span_counts_from_the_first_word_of_the_document(encoder, monkeypatch):
    objective = make(encoder, **SMALL)
    document = [2, *range(100, 300), 3]
    monkeypatch.setattr(objective, "spans", lambda length, draw: [((0, 5), [(3, 9), (195, length)])])
    views = objective.views(Examples([document], None, np.random.default_rng))
    assert views["anchor"] == [[2, *range(100, 105), 3]]
    assert views["positive"] == [[2, *range(103, 109), 3], [2, *range(295, 300), 3]]


def test_the_spans_of_a_document_hang_on_its_own_generator_alone(encoder):
    objective = make(encoder, **SMALL)
    documents = [[2, *np.random.default_rng(seed).integers(5, 30, 200).tolist(), 3] for seed in range(3)]

    def cut(order, epoch):
        draws = [np.random.default_rng([7, epoch, place]) for place in order]
        return objective.views(Examples([documents[i] for i in order], None, lambda i: draws[i]))["anchor"]

    assert cut([0, 1, 2], 0)[:2] == cut([2, 0], 0)[2:]
    assert cut([0], 0) != cut([0], 1)


@pytest.mark.parametrize("unit", ["wordpiece", "whitespace"])
def test_a_span_leaves_room_for_the_special_tokens_and_takes_none_from_the_document(encoder, monkeypatch, unit):
    objective = make(encoder, **SMALL, span_unit=unit)
    document = encoder.tokenizer("cat dog " * 30)["input_ids"]  # words of one piece
    monkeypatch.setattr(objective, "spans", lambda length, draw: [((0, length), [(length - 5, length)])])
    views = objective.views(Examples([document], None, np.random.default_rng))
    assert views["anchor"] == [[*document[:19], document[-1]]]
    assert views["positive"] == [[document[0], *document[-6:]]]


def test_text_without_spaces_is_cut_by_word_pieces(encoder, monkeypatch):
    objective = make(encoder, **SMALL, span_unit="whitespace")
    document = encoder.tokenizer("cat dog " * 50)["input_ids"]
    monkeypatch.setattr(objective._tokenizer, "decode", lambda ids: "\u96e8" * len(ids))
    assert objective.views(Examples([document], None, np.random.default_rng)) == make(encoder, **SMALL).views(
        Examples([document], None, np.random.default_rng)
    )


# documents


def test_short_documents_are_skipped_and_counted(encoder):
    lengths = np.array([82, 81, 300, 10], np.int32)  # 80 tokens and two special tokens are just enough
    objective = make(encoder, **SMALL)
    assert objective.choose(lengths).tolist() == [True, False, True, False]
    assert "2 of 4 documents are long enough" in objective.notes(lengths)[0]


def test_a_corpus_of_short_documents_is_refused_with_what_to_set(encoder):
    mend = "set objective.max_length=7 with objective.min_length=3 for 2 of them$"
    with pytest.raises(UserError, match=f"none of 3 documents has .* the longest has 48: {mend}"):
        make(encoder).choose(np.array([50, 20, 30], np.int32))
    assert make(encoder, max_length=7, min_length=3).choose(np.array([50, 20, 30], np.int32)).sum() == 2
    with pytest.raises(UserError, match=r"of them, or objective\.num_anchors=1, or objective\.short_doc"):
        make(encoder).choose(np.array([150, 20, 140], np.int32))


def test_the_longest_span_follows_the_encoder(encoder):
    assert make(encoder).longest == encoder.max_seq_length == 64
    with pytest.raises(UserError, match="the encoder reads 64 tokens"):
        make(encoder, max_length=65)


@pytest.mark.filterwarnings("ignore:template")  # of which the tiny tokenizer knows no word
def test_pooling_by_a_prompt_s_mask_is_refused_where_anchors_are_masked(bert):
    with pytest.raises(UserError, match="pooling 'prompt' does not fit declutr"):
        make(load_encoder(bert, pooling="prompt"))


# loss


def test_nt_xent_of_two_orthogonal_pairs():
    eye = torch.eye(2)
    assert nt_xent(eye, eye, 1.0).item() == pytest.approx(0.5514447, abs=1e-6)
    assert nt_xent(eye, eye, 1.0, reduction="sum").item() == pytest.approx(2.2057789, abs=1e-6)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("case", ["a", "h"])
def test_the_contrast_and_its_gradients_are_those_of_the_authors(golden, encoder, case, precision):
    values, (dtype, rtol, atol) = golden("declutr_ntxent"), DTYPES[precision]
    pair = [
        torch.tensor(values[f"{case}_{name}"], dtype=dtype, requires_grad=True) for name in ("anchors", "positives")
    ]

    def loss(temperature):
        objective = make(encoder, temperature=temperature, mlm_weight=0.0)
        return objective.terms(*(column.flatten(0, 1) for column in pair))["contrast"]

    found = loss(float(values[f"{case}_tau"]))
    found.backward()
    for name, actual in {"loss": found.detach(), "grad_anchors": pair[0].grad, "grad_positives": pair[1].grad}.items():
        expected = torch.tensor(values[f"{case}_pml_{name}_{precision}"])
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
    if precision == "f64":  # theirs saturates at a tiny temperature; ours is the exact one
        assert loss(5e-4).item() == pytest.approx(float(values[f"{case}_tau5e-4_ce_mean_f64"]), rel=1e-9)


def test_copies_of_a_positive_count_once_and_groups_belong_to_their_anchor(encoder):
    objective = make(encoder, mlm_weight=0.0)
    anchors, positives = torch.randn(3, 8).double(), torch.randn(3, 8).double()
    once = objective.terms(anchors, positives)["contrast"]
    grouped = positives.repeat_interleave(4, dim=0)
    torch.testing.assert_close(objective.terms(anchors, grouped)["contrast"], once)
    interleaved = positives.repeat(4, 1)
    assert not torch.isclose(objective.terms(anchors, interleaved)["contrast"], once)
    several = torch.randn(12, 8).double()
    swapped = several.unflatten(0, (3, 4)).flip(1).flatten(0, 1)
    torch.testing.assert_close(
        objective.terms(anchors, several)["contrast"], objective.terms(anchors, swapped)["contrast"]
    )


def test_every_anchor_meets_its_own_positives_whatever_their_lengths(encoder, rows, monkeypatch):
    objective = make(encoder.eval(), **SMALL).eval()
    monkeypatch.setattr(
        "selfsent.objectives.declutr.mask_tokens",
        lambda e, t, p: (t, torch.zeros_like(t["input_ids"], dtype=torch.bool)),
    )
    seen = []
    monkeypatch.setattr(objective, "terms", lambda anchors, positives: seen.append((anchors, positives)) or {})
    batch = batch_of(objective, encoder, rows)
    objective(encoder, batch)
    for found, name in zip(seen[0], ("anchor", "positive"), strict=True):
        torch.testing.assert_close(found, embed(encoder, batch[name]), rtol=1e-4, atol=1e-5)


def test_reading_by_length_changes_nothing_but_the_padding(encoder):
    draw = np.random.default_rng(0)
    rows = [[2, *draw.integers(5, 30, n).tolist(), 3] for n in draw.integers(4, 60, 40)]
    tokens = collate(encoder.eval(), rows)
    found = torch.empty(40, 32)
    computed = 0
    for places, share in split_by_length(tokens):
        found[places] = embed(encoder, share)
        computed += share["attention_mask"].numel()
    torch.testing.assert_close(found, embed(encoder, tokens), rtol=1e-4, atol=1e-5)
    assert 1 - sum(map(len, rows)) / computed < 0.15


# schedule


def test_the_slanted_triangular_schedule_has_its_published_values(golden):
    published = {0: 1.5625e-6, 100: 3.128e-6, 1_000: 1.721e-5, 3_095: 5.0e-5, 10_000: 3.799e-5, 30_952: 1.5625e-6}
    for step, rate in published.items():
        assert slanted_triangular(step, 30_952, 5e-5) == pytest.approx(rate, rel=3e-4)
    values = golden("declutr_lr")
    for step, rate in zip(values["T1000_steps"], values["T1000_lr"], strict=True):
        assert slanted_triangular(int(step), 1000, 5e-5) == pytest.approx(float(rate), rel=1e-12)


def test_either_loss_can_be_left_out(encoder, rows):
    for changes, names in (({"mlm_weight": 0.0}, {"contrast"}), ({"contrast_weight": 0.0}, {"masked_lm"})):
        objective = make(encoder, **SMALL, **changes)
        assert set(objective(encoder, batch_of(objective, encoder, rows))) == names
