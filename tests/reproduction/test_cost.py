"""Costs agree with a count by hand, and a training that two tables share counts once."""

import pytest
import torch
from transformers import BertConfig, BertModel

from selfsent.encoder.dropout import install_dropout
from selfsent.reproduction.cost import format_bytes, format_hours, plan_cost, time_machine
from selfsent.reproduction.plan import plan_artifacts
from selfsent.reproduction.scale import ReproduceOptions
from selfsent.reproduction.spec import Artifact, ArtifactRow, Training, find_artifact
from selfsent.training.optimizer import MasterWeights


def costs(*recipes, seeds=1, settings=()):
    rows = tuple(ArtifactRow(name=name, source=Training(recipe=name, settings=settings)) for name in recipes)
    artifact = Artifact(id="x", title="x", rows=rows)
    return plan_cost(plan_artifacts([artifact], ReproduceOptions()), seeds)


def operations(*recipes):
    return sum(costs(*recipes).operations.values())


def test_an_epoch_of_simcse_on_bert_base_counts_six_operations_for_each_weight_and_token_of_two_views():
    cost = costs("simcse-bert-base")
    assert (cost.trainings, cost.steps, cost.texts) == (1, 15_625, 1_000_000)
    matrices = 12 * (4 * 768**2 + 2 * 768 * 3072)  # weights of attention and feed-forward in 12 layers
    assert cost.operations == {768: pytest.approx(6 * matrices * 1_000_000 * 2 * 30)}


def test_weights_beside_the_encoder_count_for_the_tokens_that_meet_them():
    encoder = 12 * 12 * 768**2
    decoder = 16 * (4 * 768**2 + 2 * 768 * 2048) + 768 * 30_522  # layers, and the prediction of words
    tokens = 5_000 * 64 * 38  # of one view, with the prompt
    assert operations("denosent-bert-base") == pytest.approx(6 * tokens * (2 * encoder + decoder))
    vectors, projector = 2 * 5_209 * 192, 768 * 4096 + 2 * 4096**2
    assert operations("scd-bert-base") == pytest.approx(6 * vectors * (30 * encoder + projector))


def test_a_folder_of_a_known_name_counts_only_where_it_is(bert, tmp_path, monkeypatch):
    of_bert_base = operations("simcse-bert-base")
    (tmp_path / "bert-base-uncased").symlink_to(bert)
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(tmp_path)
        assert operations("simcse-bert-base") < of_bert_base / 1000
    assert operations("simcse-bert-base") == of_bert_base


def test_published_steps_are_those_of_the_papers():
    assert costs("scd-bert-base").steps == 5_209
    assert costs("denosent-bert-base").steps == 5_000
    assert costs("declutr-roberta-base").steps in (30_952, 30_953)  # the last, smaller batch is dropped there


def test_a_third_view_costs_half_more_than_two():
    assert operations("whitenedcse-bert-base") == pytest.approx(1.5 * operations("simcse-bert-base"))


def test_shared_trainings_count_once_and_seeds_multiply():
    tables = [find_artifact(name) for name in ("whitenedcse-table-5", "whitenedcse-table-4")]
    plans = plan_artifacts(tables, ReproduceOptions())
    alone = [plan_cost([plan], 1).trainings for plan in plans]
    assert (alone, plan_cost(plans, 1).trainings, plan_cost(plans, 3).trainings) == ([4, 5], 8, 24)


def test_memory_is_that_of_the_largest_training_counted_by_hand():
    encoder = 30_522 * 768 + 12 * 12 * 768**2
    a_text = 1.6 * 2 * 30 * 12 * (44 * 768 + 8 * 12 * 30)  # two views of 30 tokens, 12 layers, 12 heads
    assert costs("simcse-bert-base").memory == pytest.approx(18 * encoder + 64 * a_text)
    projector = 768 * 4096 + 2 * 4096**2
    scd = costs("scd-bert-base").memory
    assert scd == pytest.approx(18 * (encoder + projector) + 192 * a_text)
    assert costs("simcse-bert-base", "scd-bert-base", seeds=3).memory == scd


@pytest.mark.parametrize("places", [32, 128])
def test_the_bytes_that_a_layer_keeps_are_those_that_autograd_saves(places):
    kept = {}

    def count(layers):
        shape = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "vocab_size": 100}
        model = BertModel(BertConfig(num_hidden_layers=layers, **shape), add_pooling_layer=False).train()
        install_dropout(model)
        MasterWeights(model)
        weights, saved = {weight.data_ptr() for weight in model.parameters()}, {}

        def pack(tensor):
            if tensor.data_ptr() not in weights:
                saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        ids = torch.randint(5, 100, (16, places))
        with (
            torch.autocast("cpu", dtype=torch.bfloat16),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        ):
            kept[layers] = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return sum(saved.values())

    a_token = (count(3) - count(2)) / (16 * places)
    assert a_token == pytest.approx(44 * 128 + 8 * 2 * places, rel=0.01)


def test_hours_are_the_operations_of_each_width_at_the_rate_of_that_width():
    both, large = costs("simcse-bert-base", "whitenedcse-bert-large"), costs("whitenedcse-bert-large")
    assert set(both.operations) == {768, 1024}
    assert both.hours({768: 1e12, 1024: 2e12}) == pytest.approx(
        costs("simcse-bert-base").hours(1e12) + large.hours(2e12)
    )
    assert both.hours(1e12) == pytest.approx(sum(both.operations.values()) / 1e12 / 3600)


def test_a_machine_is_timed_for_any_width():
    assert all(time_machine(width) > 1e6 for width in (32, 100))


def test_bytes_and_hours_are_written_as_a_reader_would():
    assert [format_bytes(count) for count in (0.0, 2.0**29, 5.25 * 2**30)] == ["-", "0.5 GiB", "5.2 GiB"]
    hours = {0.0: "-", 0.001: "1 min", 0.5: "30 min", 3.04: "3.0 h", 100.0: "4 days"}
    assert {number: format_hours(number) for number in hours} == hours
