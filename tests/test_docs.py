"""The documentation is true: its commands and programs run, its links lead somewhere, its settings exist.

Blocks run in a folder with small stand-ins for texts, models and evaluation data; training is cut to two steps.  A
block after ``<!-- not run: why -->`` is only parsed: its commands, options and settings have to exist.  A block after
``<!-- file: PATH -->`` is written to that file before it runs.
"""

import doctest
import inspect
import json
import lzma
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from fake_hub import reached
from labelled_files import FEW, shrink
from tiny import TEXTS, make_base
from tiny_marian import train as train_translator
from tiny_marian import write as write_translator

import selfsent
from selfsent import config, objectives, pairs
from selfsent.__main__ import main
from selfsent.cli import app
from selfsent.corpus.settings import CorpusConfig
from selfsent.errors import UserError
from selfsent.evaluation.data_sets import SETS
from selfsent.evaluation.suite import resolve_tasks
from selfsent.objectives import registry
from selfsent.pairs.near_pairs import MineConfig
from selfsent.pretraining import pretrain as pretraining
from selfsent.searching.settings import IndexConfig
from selfsent.selection.settings import FitConfig
from selfsent.serving.settings import ServeConfig
from selfsent.sweeping.space import each_value, split_settings
from selfsent.training import train
from selfsent.word_vectors.static_vectors import StaticConfig

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "benchmarks/README", "results/README")),
]
# Pages that only the built site has; building it checks links to them.
GENERATED = {"settings.md", "commands.md", "tutorial.md"}
COMMANDS = typer.main.get_command(app).commands
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|file): (?P<what>.+?) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)
CODE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    place: str  # page:line
    language: str
    body: str
    mark: str | None  # "not run" or "file"
    what: str | None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{page.relative_to(ROOT)}:{line}", found["language"], found["body"], found["mark"], found["what"])


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def commands(body: str) -> Iterator[list[str]]:
    """The commands of a block of shell, as words."""
    for line in body.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[: words.index("&&")]
            words = words[words.index("&&") + 1 :]
        if words:
            yield words


# ------------------------------------------------------------------------------------------------ what is only parsed


def parse(words: list[str]) -> None:
    """Check a command that is not run: that it, its options, its settings and its tasks exist."""
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.M), f"no target {rest[0]}"
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.findall(r"\.\[(\w+)\]", " ".join(rest))) <= set(extras)
    elif program in ("torchrun", "accelerate"):
        parse(rest[rest.index("-m") + 1 :])
    elif program == "selfsent":
        name, *rest = rest
        command = COMMANDS[name]
        while hasattr(command, "commands"):
            name, *rest = rest
            command = command.commands[name]
        given = command.make_context(name, list(rest)).params
        settings = list(given.get("set_") or ())
        if name == "train":
            known_settings(given["method"], settings)
        elif name == "sweep":
            single, swept = split_settings(settings)
            known_settings(given["method"], [*single, *each_value(swept)])
        elif name == "pretrain":
            kind = StaticConfig if given["size"] == "static" else pretraining.PretrainConfig
            config.build_config(kind, config.apply_settings({}, settings), "")
        elif name in ("index", "mine", "serve"):
            kind = {"index": IndexConfig, "mine": MineConfig, "serve": ServeConfig}[name]
            config.build_config(kind, config.apply_settings({}, settings), "")
        elif name == "fit":
            config.build_config(FitConfig, config.apply_settings({}, settings), "")
        elif name == "evaluate":
            resolve_tasks([task for task in given["tasks"].split(",") if not task.startswith("mteb:")])
    else:
        assert program in ("git", "cd", "curl"), f"there is no way to check {program}"


def known_settings(method: str | Path, settings: list[str] = ()) -> None:
    """Resolve every key of a recipe, as training would before it reads anything."""
    recipe = train.resolve(method, settings=settings)
    registry.plan_objective(recipe.method, recipe.objective)
    config.build_config(CorpusConfig, recipe.corpus, "corpus")


# ------------------------------------------------------------------------------------------------------ what is run

WORDS = sorted({word for text in TEXTS for word in text.split()})  # what the tiny encoders know
QUICK = ["train.steps=2", "train.batch_size=8", "train.evaluate_every=2", "train.warmup_steps=0", "hardware.threads=1"]
SHORT = {  # in the examples of docstrings
    '"train.steps=500"': str(QUICK)[1:-1],
    '{"train.steps": 500}': f"{QUICK}, base='bert-base-uncased'",
    "minutes=5": "minutes=0.1, base='bert-base-uncased'",
    "progress=selfsent.Bar()": "progress=selfsent.Bar(), minutes=0.1, base='bert-base-uncased'",
    'size="static"': 'size="static", vocabulary=100, settings=["factors.width=16"]',
}
SMALLER = {"builtin": "bert-base-uncased", "pydocs": "tickets.jsonl"}  # stand-ins for what ships
LONGER = {"--hours", "--tokens", "--vocabulary"}  # options of pretrain that a test gives its own values


def shortened(words: list[str]) -> list[str]:
    """The same command, for a tiny encoder and a few steps; what an earlier block wrote makes way."""
    name, words = words[0], [SMALLER.get(word, word) for word in words]
    words = [
        "2" if before in ("--seeds", "--trials") else word for before, word in zip(["", *words], words, strict=False)
    ]
    for option in ("--out", "-o"):
        if option in words and not {"--resume", "--update"} & {*words}:
            remove(Path(words[words.index(option) + 1]))
    if name in ("train", "sweep"):
        base = (
            []
            if "--base" in words or config.is_recipe(words[words.index("--method") + 1])
            else ["--base", "bert-base-uncased"]
        )
        return [*words, *base, *(word for setting in QUICK for word in ("--set", setting))]
    if name == "reproduce":
        small = ["steps=2", "document_steps=2", "batch_size=8", "threads=1", "evaluations=1"]
        return [*words, *(word for setting in small for word in ("--set", setting))]
    if name == "pretrain" and "--vectors" not in words:
        kept = [word for before, word in zip(["", *words], words, strict=False) if not {before, word} & LONGER]
        if "static" in kept:
            return [*kept, "--vocabulary", "150", "--set", "factors.width=16"]
        size = [] if "--base" in kept else ["--size", "nano", "--vocabulary", "150"]
        settings = ["length=16", "batch_size=4", "hardware.threads=1"]
        return [*kept, *size, "--tokens", "500", *(word for setting in settings for word in ("--set", setting))]
    if name in ("compare", "evaluate"):
        return [*words, "--bootstrap", "100"]
    if name == "export":  # what a random encoder loses says nothing
        return [*words, "--accept-loss", "--width", "16"]
    return words


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def run(words: list[str], place: str, monkeypatch, capsys) -> None:
    """Run one command in this process."""
    monkeypatch.setattr(sys, "argv", ["selfsent", *shortened(words)])
    status: object = 0
    try:
        main()
    except SystemExit as ended:
        status = ended.code or 0
    out, err = capsys.readouterr()
    assert status == 0, f"{place}: selfsent {shlex.join(words)}\n{out}{err}"


def quick_train(method: str, **given) -> object:
    """``selfsent.train`` for a tiny encoder and a few steps."""
    quick = {"base": "bert-base-uncased", **given, "settings": [*given.get("settings", ()), *QUICK]}
    return train.train(method, **quick)


def sentences(count: int, words: int, seed: int, vocabulary: list[str] = WORDS) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(vocabulary, words)).capitalize() + "." for _ in range(count)]


def write_texts(folder: Path) -> None:
    """Texts of every form that the pages name."""
    found = iter(sentences(4 * 900, 9, seed=0))
    tickets = [{"title": next(found), "text": " ".join(next(found) for _ in range(3))} for _ in range(900)]
    lines = [json.dumps({**ticket, "body": ticket["text"]}) for ticket in tickets]
    (folder / "tickets.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "articles").mkdir()
    articles = [" ".join(sentences(8, 9, seed)) for seed in range(1, 60)]
    (folder / "articles" / "one.txt").write_text("\n".join(articles) + "\n", encoding="utf-8")
    (folder / "wiki1m_for_simcse.txt").write_text("\n".join(sentences(200, 12, seed=70)), encoding="utf-8")
    (folder / "transcript.txt").write_text("\n".join(sentences(200, 9, seed=76)), encoding="utf-8")
    draw = np.random.default_rng(0)
    made_up = ["".join(draw.choice(list("abcdefghijklmnop"), 4)) for _ in range(200)]
    (folder / "texts").mkdir()
    (folder / "texts" / "own.txt").write_text("\n".join(sentences(300, 14, 71, [*WORDS, *made_up])), encoding="utf-8")
    for side, seed in (("source", 72), ("target", 73)):
        with lzma.open(folder / f"train.{side}.xz", "wt", encoding="utf-8") as file:
            file.write("\n".join(sentences(60, 8, seed)) + "\n")
    (folder / "glove.txt").write_text("ship 1 0\nsoup 0 1\n", encoding="utf-8")


def write_evaluation_data(folder: Path) -> None:
    """STS-B in SentEval's layout, and a table of intents."""
    place = folder / "evaluation-data" / "downstream" / "STS" / "STSBenchmark"
    place.mkdir(parents=True)
    draw = np.random.default_rng(1)
    texts = sentences(100, 6, seed=74)
    for ((file, count),) in map(dict.items, SETS["stsb"].splits.values()):
        rows = [
            f"genre\tfile\tyear\t1\t{draw.uniform(0, 5):.2f}\t{'	'.join(draw.choice(texts, 2))}"
            for _ in range(count)
        ]
        (place / file).write_text("\n".join(rows) + "\n", encoding="utf-8")
    intents = [f"{text.rstrip('.')},{WORDS[row % 3]}" for row, text in enumerate(sentences(90, 6, seed=75))]
    (folder / "intents.csv").write_text("text,label\n" + "\n".join(intents) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Iterator[Path]:
    """A folder with stand-ins for what the pages name, and trained runs."""
    folder = tmp_path_factory.mktemp("docs")
    write_texts(folder)
    with pytest.MonkeyPatch.context() as patched:
        shrink(patched, "stsb", FEW)
        write_evaluation_data(folder)
        yield fill(folder)


def fill(folder: Path) -> Path:
    """Models and runs in the folder."""
    make_base(folder / "bert-base-uncased")
    translator = train_translator()
    for name, languages in (("opus-mt-en-de", ("en", "de")), ("opus-mt-de-en", ("de", "en"))):
        write_translator(folder / "Helsinki-NLP" / name, translator, *languages)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("SELFSENT_CACHE", str(folder / "cache"))
        selfsent.train("simcse", base="bert-base-uncased", corpus=["tickets.jsonl"], out="runs/tickets", settings=QUICK)
    for name in ("adjacent", "simcse"):
        shutil.copytree(folder / "runs" / "tickets", folder / "runs" / name)
    return folder


def test_every_test_that_the_guarantees_name_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_their_order(page, workplace, monkeypatch, capsys):
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("SELFSENT_CACHE", str(workplace / "cache"))
    monkeypatch.setattr(selfsent, "train", quick_train)
    for block in blocks(page):
        if block.mark == "file":
            (workplace / block.what).parent.mkdir(exist_ok=True)
            (workplace / block.what).write_text(block.body, encoding="utf-8")
        if block.language == "sh":
            for words in commands(block.body):
                if words[0] == "selfsent" and block.mark != "not run":
                    run(words[1:], block.place, monkeypatch, capsys)
                else:
                    parse(words)
        elif block.language == "python":
            body = block.body.replace('"builtin"', '"bert-base-uncased"')
            program = compile(body, block.place, "exec")
            for out in re.findall(r'(?:out=|encode_to\()"([^"]+)"', block.body):
                remove(Path(out))
            if block.mark != "not run":
                exec(program, {"__name__": "documentation"})
        elif block.language == "toml":
            Path("block.toml").write_text(block.body, encoding="utf-8")
            known_settings("block.toml")
        else:
            assert block.language == "text", f"{block.place}: give the block a language"


@pytest.mark.parametrize("name", sorted(set(selfsent.__all__)))
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the hub's library
def test_the_example_of_a_public_name_runs(name, workplace, monkeypatch):
    examples = doctest.DocTestParser().get_examples(inspect.getdoc(getattr(selfsent, name)) or "")
    assert examples, f"selfsent.{name} has no example"
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("SELFSENT_CACHE", str(workplace / "cache"))
    code = "".join(example.source for example in examples)
    for path in re.findall(r'(?:out=|encode_to\(|make\(\[.*?\], |"articles", )"([^"]+)"', code):
        remove(Path(path))
    for usual, short in SHORT.items():
        code = code.replace(usual, short)
    with reached(monkeypatch):
        exec(compile(code, name, "exec"), {"selfsent": selfsent, "torch": torch, "SimCSE": objectives.SimCSE})


# ----------------------------------------------------------------------------------------------------- what is named


@pytest.mark.parametrize(
    "page",  # results name commands as they were when they were run
    [*(page for page in PAGES if page.name != "results.md"), ROOT / "CONTRIBUTING.md"],
    ids=lambda page: page.name,
)
def test_commands_options_and_settings_in_the_prose_exist(page):
    keys = {setting.key for setting in [*config.describe(config.Recipe), *config.describe(CorpusConfig, "corpus.")]}
    for name in registry.method_names():
        keys |= {setting.key for setting in config.describe(registry.load_method(name).Config, "objective.")}
    for kind in (pretraining.PretrainConfig, StaticConfig):
        keys |= {setting.key for setting in config.describe(kind)}
    options = {option for command in COMMANDS.values() for option in all_options(command)}
    for code in CODE.findall(prose(page)):
        for key in re.findall(
            r"(?<![\w/.])(?:train|corpus|encoder|hardware|objective|factors)\.[a-z]\w+(?![\w.(])", code
        ):
            assert key in keys or Path(key).suffix in (".py", ".md", ".jsonl", ".csv"), (
                f"{page.name}: `{code}` names {key}"
            )
        words = code.split()
        if words[0] == "selfsent" and len(words) > 1 and words[1] != "--help":
            assert words[1] in COMMANDS, f"{page.name}: `{code}`"
            used = {word for word in words if word.startswith("--")}
            assert used <= all_options(COMMANDS[words[1]]), f"{page.name}: `{code}`"
        elif words[0].startswith("--"):
            assert words[0] in options, f"{page.name}: `{code}`"


def all_options(command) -> set[str]:
    """Every option of a command or of the commands under it."""
    under = getattr(command, "commands", {}).values()
    return {option for part in command.params for option in [*part.opts, *part.secondary_opts]}.union(
        *map(all_options, under)
    )


def test_every_recipe_of_the_package_is_in_the_table_and_the_other_way_round():
    shipped = {path.stem for path in config.RECIPES.glob("*.toml")}
    table = [line for line in (ROOT / "docs" / "recipes.md").read_text().splitlines() if line.startswith("| `")]
    assert {name for line in table for name in CODE.findall(line.split("|")[1])} == shipped


def test_the_reference_has_every_public_name_and_no_other():
    named = re.findall(r"^::: selfsent\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.M)
    assert sorted(named) == sorted(selfsent.__all__)
    page = (ROOT / "docs" / "api.md").read_text()
    assert {f"::: selfsent.objectives.{name}" for name in objectives.__all__ if name not in named} <= {
        *page.splitlines()
    }
    assert {f"::: selfsent.pairs.{name}" for name in pairs.__all__} <= {*page.splitlines()}


# ---------------------------------------------------------------------------------------------------------- links


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.+?) *$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        target, _, anchor = link.partition("#")
        place = page if not target else (page.parent / target).resolve()
        if re.match(r"https?://", link) or (place.parent == ROOT / "docs" and place.name in GENERATED):
            continue
        assert place.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(place), f"{page.name}: {link}"


# ------------------------------------------------------------------------------------------------ the checks themselves


@pytest.mark.parametrize(
    "line",
    [
        "selfsent trane text.txt",
        "selfsent train text.txt --methods simcse",
        "selfsent train --method simcse --set train.stepz=2",
        "selfsent sweep --method simcse --set train.stepz=2,3",
        "selfsent train --method simcse --set objective.temprature=2",
        "selfsent pretrain texts --set learning_rat=2",
        "selfsent fit texts --set stepz=2",
        "selfsent evaluate builtin --tasks stz",
        "make demonstration",
        "pip install '.[dokuments]'",
        "wget example.org",
        "torchrun --nproc-per-node 2 -m selfsent trane text.txt",
    ],
)
def test_a_block_that_is_only_parsed_fails_where_a_name_is_wrong(line):
    (words,) = commands(line)
    usage_error = typer.BadParameter.__base__
    with pytest.raises((KeyError, UserError, AssertionError, usage_error)):
        parse(words)
