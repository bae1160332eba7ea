"""What the shell completes: methods, recipes and the keys of --set.

They are read from the sources, because importing torch takes seconds.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

PACKAGE = Path(__file__).parent.parent
# The configuration classes whose keys a command takes: file, class, prefix.
_RECIPE = (
    ("config.py", "Recipe", ""),
    ("config.py", "EncoderConfig", "encoder."),
    ("config.py", "TrainConfig", "train."),
    ("config.py", "HardwareConfig", "hardware."),
    ("corpus/settings.py", "CorpusConfig", "corpus."),
)
_CLASSES = {
    "train": _RECIPE,
    "sweep": _RECIPE,
    "fit": (("selection/settings.py", "FitConfig", ""), _RECIPE[-1]),
    "pretrain": (
        ("pretraining/pretrain.py", "PretrainConfig", ""),
        ("word_vectors/static_vectors.py", "StaticConfig", ""),
        ("word_vectors/factorization.py", "FactorConfig", "factors."),
        ("pretraining/masked_lm.py", "Config", "objective."),
        *_RECIPE[-2:],
    ),
    "mine": (("pairs/mining_settings.py", "MineConfig", ""),),
    "index": (("searching/settings.py", "IndexConfig", ""),),
    "serve": (("serving/settings.py", "ServeConfig", ""),),
    "reproduce": (("reproduction/scale.py", "SmallScale", ""),),
}
Candidates = list[tuple[str, str]]  # what may be written, and what it is


def complete_method(incomplete: str) -> Candidates:
    """Return the methods and presets that fit, also the next of several joined by +."""
    from selfsent.cli.methods import method_outlines

    joined, plus, _ = incomplete.rpartition("+")
    names: Candidates = []
    for method, (title, presets) in method_outlines().items():
        names += [(method, title), *((preset, f"preset of {method}") for preset in presets)]
    return _fitting(incomplete, ((f"{joined}{plus}{name}", title) for name, title in names))


def complete_recipe(incomplete: str) -> Candidates:
    """Return the methods, presets and recipes that fit."""
    recipes = sorted(path.stem for path in (PACKAGE / "recipes").glob("*.toml"))
    return complete_method(incomplete) + _fitting(incomplete, ((name, "recipe") for name in recipes))


def complete_setting(context: typer.Context, incomplete: str) -> Candidates:
    """Return the keys that the command's --set takes, with their meaning; of the method that was named, or of all."""
    command = str(context.info_name)
    keys = [key for file, name, prefix in _CLASSES[command] for key in class_keys(PACKAGE / file, name, prefix)]
    if command in ("train", "sweep"):
        from selfsent.cli.methods import method_outlines

        outlines, parts = method_outlines(), str(context.params.get("method") or "").split("+")
        named = [method for method, (_, presets) in outlines.items() if {method, *presets} & {*parts}]
        for method in named or outlines:
            keys += class_keys(PACKAGE / "objectives" / f"{method}.py", "Config", "objective.")
    return _fitting(incomplete, ((f"{key}=", meaning) for key, meaning in dict(keys).items()))


def complete_words(*words: str) -> Callable[[str], Candidates]:
    """Return what completes an option that takes one of a few words."""

    def complete(incomplete: str) -> Candidates:
        return _fitting(incomplete, ((word, "") for word in words))

    return complete


def class_keys(file: Path, name: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys that a configuration class declares with ``setting``, and their meaning."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.value, ast.Call):
                    call = line.value
                    if ast.unparse(call.func) == "setting":
                        meaning = call.args[1] if len(call.args) > 1 else None
                        text = meaning.value if isinstance(meaning, ast.Constant) else ""
                        yield prefix + ast.unparse(line.target), str(text)


def _fitting(incomplete: str, candidates: Iterator[tuple[str, str]]) -> Candidates:
    return [one for one in candidates if one[0].startswith(incomplete)]
