"""The contract that every method keeps; a new file in methods/ is tested here unasked."""

import re
import sys
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest
import torch
from tiny import make_base, make_examples

from selfsent.config import describe
from selfsent.encoder.embed import collate
from selfsent.encoder.encode import encode
from selfsent.errors import ConfigurationError, UserError
from selfsent.objectives import registry
from selfsent.objectives.distil import Distil

PRESETS = sorted((name, preset) for name in registry.method_names() for preset in registry.load_method(name).presets)


def build(name, encoder, teacher, **changes):
    """The method as it comes, but for what is too wide or too deep for a test: a projector's features weigh more."""
    method = registry.load_method(name)
    usual = method.Config()
    if hasattr(usual, "projector_width"):
        heavier = usual.decorrelation_weight * usual.projector_width / 32
        changes = {"projector_width": 32, "decorrelation_weight": heavier, **changes}
    if hasattr(usual, "teacher"):
        changes = {"teacher": str(teacher), **changes}
    if hasattr(usual, "decoder_layers"):
        changes = {"decoder_layers": 2, "decoder_width": 64, **changes}
    return method(method.Config(**changes), encoder)


def columns(objective, encoder, rows):
    return {name: collate(encoder, view) for name, view in objective.views(make_examples(objective, rows)).items()}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("teacher"), "distilbert", seed=3)


@pytest.fixture(params=registry.method_names())
def objective(request, encoder, teacher):
    return build(request.param, encoder, teacher)


def test_terms_are_named_finite_scalars_that_train_every_parameter(objective, encoder, rows):
    terms = objective(encoder, columns(objective, encoder, rows))
    assert terms
    assert all(term.ndim == 0 and term.isfinite() for term in terms.values())
    sum(terms.values()).backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())
    assert any(p.grad is not None and p.grad.any() for p in encoder.parameters())


def test_the_objective_never_keeps_the_encoder(objective, encoder):
    mine = {id(p) for p in objective.parameters()}
    assert mine or isinstance(objective, Distil)  # which has no head
    assert mine.isdisjoint(id(p) for p in encoder.parameters())
    assert encoder not in vars(objective).values()


def test_everything_random_comes_from_the_global_generator(objective, encoder, rows):
    batch = columns(objective, encoder, rows)

    def loss(seed):
        torch.manual_seed(seed)
        return sum(objective(encoder, batch).values()).item()

    assert loss(0) == loss(0)
    assert loss(0) != loss(1)


def test_heads_start_at_the_scale_of_transformers(objective):
    linears = [module for module in objective.modules() if isinstance(module, torch.nn.Linear)]
    assert linears or isinstance(objective, Distil)
    for linear in linears:
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.15)
        assert linear.bias is None or not linear.bias.any()


def test_no_head_reaches_the_encoder(objective, encoder, rows):
    texts = ["the cat sat on the mat", "rain fell on the quiet town"]
    objective(encoder, columns(objective, encoder, rows))
    before = encode(encoder, texts)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter.normal_()
    assert np.array_equal(encode(encoder, texts), before)
    assert objective.exported_head() is None


def test_bf16_around_the_step_moves_the_terms_little(objective, encoder, rows):
    batch = columns(objective, encoder, rows)

    def terms():
        torch.manual_seed(0)
        return objective(encoder, batch)

    exact = terms()
    with torch.autocast("cpu", torch.bfloat16):
        rough = terms()
    for name, term in rough.items():
        assert term.dtype == torch.float32
        torch.testing.assert_close(term, exact[name], rtol=0.1, atol=0.05)


def test_figures_are_finite_numbers_of_the_last_step(objective, encoder, rows):
    assert objective.figures() == {}
    objective(encoder, columns(objective, encoder, rows))
    figures = objective.figures()
    assert figures
    assert all(isinstance(figure, float) and np.isfinite(figure) for figure in figures.values())


def test_the_loss_falls_on_a_few_texts(objective, encoder):
    generator = np.random.default_rng(0)
    tokens = encoder.tokenizer
    words = range(max(tokens.all_special_ids) + 1, len(tokens))
    texts = [[tokens.cls_token_id, *generator.choice(words, 6).tolist(), tokens.sep_token_id] for _ in range(64)]
    batch = columns(objective, encoder, texts)
    with torch.no_grad():  # at its usual scale a random encoder gives every text the same vector
        for parameter in encoder.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *objective.parameters()], lr=1e-3)
    torch.manual_seed(0)
    losses = []
    for _ in range(25):
        terms = objective(encoder, batch)
        # SCD's self-contrast is no loss to be got rid of: its decorrelation carries the method.
        losses.append(terms.get("decorrelation", terms.get("contrast", sum(terms.values()))).item())
        sum(terms.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert np.mean(losses[-5:]) < 0.8 * losses[0]


def test_the_module_cites_its_paper_and_its_config_describes_every_key(objective):
    assert "https://arxiv.org/abs/" in sys.modules[type(objective).__module__].__doc__
    described = {setting.key: setting.description for setting in describe(type(objective.config))}
    assert set(described) == {field.name for field in fields(objective.config)}
    assert all(len(description) > 2 for description in described.values())


def test_the_config_is_frozen(objective):
    name = fields(objective.config)[0].name
    with pytest.raises(FrozenInstanceError):
        setattr(objective.config, name, 0)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        *((name, {"temperature": 0.0}, r"temperature = 0\.0 .* above 0") for name in registry.method_names()),
        ("simcse", {"mlm_weight": -0.1}, r"mlm_weight = -0\.1 .* at least 0"),
        ("simcse", {"head": False, "eval_head": True}, "eval_head keeps a head, and head is false"),
        ("simcse", {"mlm_probability": 1.0}, r"mlm_probability = 1\.0 .* below 1"),
        ("scd", {"dropout_high": 1.0}, r"dropout_high = 1\.0"),
        ("scd", {"attention_low": -0.1}, r"attention_low = -0\.1"),
        ("scd", {"projector_width": 1}, "projector_width = 1"),
        ("scd", {"passes": "three"}, r"unknown objective\.passes 'three': .*one, two"),
        ("scd", {"diag_sign": 2, "unsafe": True}, r"unknown objective\.diag_sign '2': .*-1, 1"),
        ("scd", {"diag_sign": -1}, "diag_sign is -1: .* allowed with unsafe"),
        ("scd", {"dropout_sites": "hidden_only", "attention_high": 0.2}, "need dropout_sites 'all'"),
        ("whitenedcse", {"num_views": 1}, "num_views = 1"),
        ("whitenedcse", {"group_width": 2, "num_groups": 12}, "group_width 2 and num_groups 12 are both given"),
        ("whitenedcse", {"whitening_form": "pca", "whiten_grad": "full"}, "whiten_grad is 'full'"),
        ("whitenedcse", {"num_groups": 0}, "num_groups = 0"),
        ("whitenedcse", {"eps": -1.0}, r"eps = -1\.0"),
        ("whitenedcse", {"momentum": 0.0}, r"momentum = 0\.0"),
        ("whitenedcse", {"whitening": "pca"}, r"unknown objective\.whitening 'pca'"),
        ("whitenedcse", {"sgw_chunking": "released", "num_views": 4}, "num_views is 4: it should be 3"),
        ("denosent", {"contrast_weight": 0.0, "denoise_weight": 0.0}, "are both 0"),
        ("denosent", {"denoise_weight": -1.0}, r"denoise_weight = -1\.0"),
        ("denosent", {"noise": 1.5}, r"noise = 1\.5"),
        ("denosent", {"decoder_dropout": 1.0}, r"decoder_dropout = 1\.0"),
        ("denosent", {"decoder_layers": 0}, "decoder_layers = 0"),
        ("denosent", {"decoder_heads": 0}, "decoder_heads = 0"),
        ("denosent", {"decoder_width": 0}, "decoder_width = 0"),
        ("denosent", {"denoise_target": "noise"}, r"unknown objective\.denoise_target 'noise'"),
        ("declutr", {"num_anchors": 0}, "num_anchors = 0"),
        ("declutr", {"memory_size": -1}, "memory_size = -1"),
        ("declutr", {"max_length": 20}, "max_length is 20: it should exceed min_length 32 by 2"),
        ("declutr", {"contrast_weight": 0.0, "mlm_weight": 0.0}, "are both 0"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name_and_value(name, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        registry.plan_objective(name, changes)


@pytest.mark.parametrize(
    ("name", "changes", "warnings"),
    [
        ("scd", {"dropout_low": 0.2, "dropout_high": 0.2}, {"dropout_low 0.2 is not below dropout_high 0.2"}),
        ("scd", {"dropout_low": 0.2, "dropout_high": 0.2, "attention_low": 0.1}, set()),
        ("scd", {"diag_sign": -1, "unsafe": True}, {"diag_sign -1 drives the two views to anti-correlate"}),
        ("whitenedcse", {"loss": "softmin", "positive_reduction": "mean"}, {"positive_reduction 'mean'"}),
        (
            "whitenedcse",
            {"whitening": "none", "num_groups": 12, "shuffle": False, "sgw_chunking": "released", "eps": 0.1}
            | {"anchor": "raw"},
            {"num_groups 12", "shuffle False", "sgw_chunking 'released'", "eps 0.1", "anchor 'raw'"},
        ),
        ("whitenedcse", {"whitening": "batch_norm", "group_width": 4}, {"group_width 4"}),
        ("whitenedcse", {"whitening": "batch_norm", "whiten_grad": "full"}, {"whiten_grad 'full'"}),
        ("whitenedcse", {"whitening": "batch", "sgw_chunking": "released"}, {"sgw_chunking 'released'"}),
        ("whitenedcse", {"whitening": "group", "momentum": 0.5}, {"momentum 0.5"}),
        ("denosent", {"denoise_weight": 0.0, "noise": 0.9, "decoder_heads": 2}, {"decoder_heads 2", "noise 0.9"}),
    ],
)
def test_what_has_no_effect_is_warned_of(name, changes, warnings, recwarn):
    registry.load_method(name).Config(**changes)
    assert {re.split(" has no effect, because |: ", str(warning.message))[0] for warning in recwarn} == warnings


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_preset_is_found_by_name_and_makes_a_config(name, preset):
    method, changes = registry.find_method(preset)
    table = registry.load_method(name).presets[preset]
    assert (method, changes) == (registry.load_method(name), table.get("objective", {}))
    assert set(table) <= {"objective", "encoder", "train"}
    config = method.Config(**changes)
    assert {key: getattr(config, key) for key in changes} == changes
    assert preset not in registry.method_names()


# What the authors' commands and papers say; the schedules are written out where they are not transformers' default.


def test_a_method_is_found_by_name_with_nothing_changed():
    assert registry.method_names() == sorted(registry.method_names())
    assert {"scd", "simcse", "whitenedcse"} <= set(registry.method_names())
    assert registry.find_method("scd") == (registry.load_method("scd"), {})


def test_a_method_outside_the_package_is_its_module_path(tmp_path, monkeypatch):
    (tmp_path / "mine_of_test.py").write_text(
        "from selfsent.objectives.scd import SCD\nclass Mine(SCD): ...\nMETHOD = Mine\n"
    )
    (tmp_path / "broken_of_test").mkdir()
    (tmp_path / "broken_of_test" / "inner.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "broken_of_test" / "empty.py").write_text("")
    (tmp_path / "broken_of_test" / "wrong.py").write_text("METHOD = 3\n")
    (tmp_path / "broken_of_test" / "mine.py").write_text("from mine_of_test import METHOD as METHOD\n")
    monkeypatch.syspath_prepend(tmp_path)
    method, changes = registry.find_method("broken_of_test.mine")
    assert (method.__name__, changes) == ("Mine", {})
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        registry.find_method("broken_of_test.inner")
    with pytest.raises(UserError, match="is no method: its last line should"):
        registry.find_method("broken_of_test.empty")
    with pytest.raises(UserError, match=r"METHOD of module 'broken_of_test\.wrong' is 3"):
        registry.find_method("broken_of_test.wrong")
    with pytest.raises(UserError, match=r"no module 'broken_of_test\.absent'"):
        registry.find_method("broken_of_test.absent")


def test_a_method_of_the_current_folder_is_found_by_the_command_too(tmp_path, monkeypatch):
    """The installed command, unlike ``python -m``, does not have the folder among those that modules come from."""
    (tmp_path / "here_of_test.py").write_text("from selfsent.objectives.scd import SCD\n")
    (tmp_path / "package_of_test").mkdir()
    (tmp_path / "package_of_test" / "mine.py").write_text("from here_of_test import SCD\nMETHOD = SCD\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(tmp_path))])
    before = [*sys.path]
    registry.load_method("scd")
    assert sys.path == before
    assert registry.load_method("package_of_test.mine").__name__ == "SCD"
    assert sys.path == [*before, str(tmp_path)]  # last: what is installed comes first


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(UserError, match=r"unknown method 'scdd': did you mean 'scd'\? choose one of .*simcse"):
        registry.load_method("scdd")
    with pytest.raises(UserError, match="unknown method 'scd_paper': did you mean 'scd_paper_literal'"):
        registry.find_method("scd_paper")
