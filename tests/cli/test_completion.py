"""The shell completes methods, recipes and the keys of --set, as the configuration classes have them, without torch."""

import os
import subprocess
import sys

import pytest
import typer

from selfsent import config
from selfsent.cli import app, listing
from selfsent.cli.completion import complete_method, complete_recipe, complete_setting
from selfsent.corpus.settings import CorpusConfig
from selfsent.objectives import registry
from selfsent.pairs.near_pairs import MineConfig
from selfsent.pretraining.pretrain import PretrainConfig
from selfsent.reproduction.scale import SmallScale
from selfsent.searching.settings import IndexConfig
from selfsent.selection.settings import FitConfig
from selfsent.serving.settings import ServeConfig
from selfsent.word_vectors.static_vectors import StaticConfig

COMMAND = typer.main.get_command(app)
RECIPE = [*config.describe(config.Recipe), *config.describe(CorpusConfig, "corpus.")]


def completed(command, incomplete="", **params):
    group = COMMAND.commands["pairs"] if command == "mine" else COMMAND
    context = typer.Context(group.commands[command], info_name=command)
    context.params = params
    return dict(complete_setting(context, incomplete))


def expected(settings):
    return {f"{one.key}=": one.description for one in settings}


def test_the_listing_is_that_of_the_configuration_classes():
    assert listing.LISTING.read_text(encoding="utf-8") == listing.listing_text(), "run make settings"


@pytest.mark.parametrize("command", ["train", "sweep"])
@pytest.mark.parametrize("method", registry.method_names())
def test_set_completes_the_keys_of_a_recipe_and_of_the_named_method(command, method):
    own = config.describe(registry.load_method(method).Config, "objective.")
    assert completed(command, method=method) == expected([*RECIPE, *own])


@pytest.mark.parametrize(
    ("command", "classes"),
    [
        ("fit", [FitConfig]),
        ("pretrain", [PretrainConfig, StaticConfig]),
        ("mine", [MineConfig]),
        ("index", [IndexConfig]),
        ("serve", [ServeConfig]),
        ("reproduce", [SmallScale]),
    ],
)
def test_set_completes_the_keys_of_a_command(command, classes):
    assert set(completed(command)) == set(expected([one for kind in classes for one in config.describe(kind)]))


def test_what_was_begun_is_completed():
    presets = registry.load_method("scd").presets
    assert completed("train", method=next(iter(presets))) == completed("train", method="scd")
    assert set(completed("train", "train.warm", method="scd")) == {"train.warmup_steps="}
    assert {"objective.temperature=", "objective.num_anchors="} <= set(completed("train", "objective."))
    assert "objective.num_anchors=" not in completed("train", "objective.", method="simcse+scd")
    assert {name for name, _ in complete_method("simcse+scd")} == {
        "simcse+scd",
        *(f"simcse+{name}" for name in presets),
    }
    assert "simcse-bert-base" in [name for name, _ in complete_recipe("simcse-b")]
    known = {name for name, _ in complete_recipe("")}
    assert known >= {*registry.method_names(), *(path.stem for path in config.RECIPES.glob("*.toml"))}


def in_a_shell(*words, **variables):
    """Run selfsent as the shell does, where torch cannot be imported."""
    program = (
        "import sys; sys.modules['torch'] = None; sys.argv[0] = 'selfsent'\nfrom selfsent.__main__ import main\nmain()"
    )
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_a_shell_is_shown_without_torch(shell):
    script = in_a_shell("--show-completion", shell)
    assert "_SELFSENT_COMPLETE" in script


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("selfsent tra", "train"),
        ("selfsent train text --method simcs", "simcse"),
        ("selfsent train text --method simcse --set objective.temp", "objective.temperature="),
        ("selfsent train --method simcse --tracker tens", "tensorboard"),
        ("selfsent pairs mine texts --set absolute", "absolute_margin="),
        ("selfsent export model --to onnx-", "onnx-int8"),
    ],
)
def test_bash_completes_a_line_without_torch(line, word):
    found = in_a_shell(_SELFSENT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split()) - 1))
    assert word in found.split()


def test_bash_asks_by_the_script_that_is_shown(tmp_path):
    """The script, in a bash of its own, fills COMPREPLY by calling selfsent."""
    (tmp_path / "selfsent").write_text(
        f"#!{sys.executable}\nimport sys\nsys.modules['torch'] = None\nsys.argv[0] = 'selfsent'\n"
        f"sys.path[:0] = {sys.path!r}\nfrom selfsent.__main__ import main\nmain()\n"
    )
    (tmp_path / "selfsent").chmod(0o755)
    ask = 'COMP_WORDS=(selfsent settings scd); COMP_CWORD=2; _selfsent_completion selfsent; echo "${COMPREPLY[@]}"'
    script = in_a_shell("--show-completion", "bash") + "\n" + ask
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert "scd" in done.stdout.split()
