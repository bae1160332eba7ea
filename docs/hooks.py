"""What MkDocs adds: pages of settings, commands, the notebook and the project's own files; the style sheet."""

import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import typer
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from pygments.formatters import HtmlFormatter
from typer.cli import get_docs_for_click

from selfsent.cli import app
from selfsent.config import EncoderConfig, HardwareConfig, Recipe, TrainConfig, describe
from selfsent.corpus.settings import CorpusConfig
from selfsent.objectives import registry
from selfsent.pairs.near_pairs import MineConfig
from selfsent.pretraining.pretrain import PretrainConfig
from selfsent.searching.settings import IndexConfig
from selfsent.selection.settings import FitConfig
from selfsent.serving.settings import ServeConfig
from selfsent.word_vectors.static_vectors import StaticConfig

ROOT = Path(__file__).parent.parent
# Files outside docs/ that are pages of the site, too.
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/README.md")
MODEL_CARDS = tuple(f"selfsent/builtin/{name}/README.md" for name in ("encoder", "masked_lm", "static"))
RESULTS = runpy.run_path(str(ROOT / "results" / "page.py"))
SECTIONS = {"encoder": EncoderConfig, "train": TrainConfig, "hardware": HardwareConfig, "corpus": CorpusConfig}


def on_files(files, config):
    """Add the generated pages and the project's files."""
    for name, content in {
        "settings.md": settings(),
        "commands.md": commands(),
        "figures.md": RESULTS["write_figures"](),
        "tutorial.md": notebook(ROOT / "docs" / "tutorial.ipynb"),
        "site.css": style_sheet(),
    }.items():
        files.append(File.generated(config, name, content=content))
    for name in (*PROJECT, *MODEL_CARDS):
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links between docs/ and the project's files lead to the pages of the site."""
    for name, result in RESULTS["read_results"]().items():
        markdown = markdown.replace(f"](../results/{name}.json)", f"](figures.md#{RESULTS['anchor'](result['title'])})")
    if page.file.src_uri in (*PROJECT, *MODEL_CARDS):
        return re.sub(r"\]\((\.\./)?docs/", r"](\1", markdown)
    return re.sub(rf"\]\(\.\./(?=({'|'.join(map(re.escape, (*PROJECT, *MODEL_CARDS)))})[#)])", "](", markdown)


def on_post_build(config):
    """Refuse pages that would load anything from another server."""
    for path in Path(config.site_dir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        found = re.findall(
            r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//[^\"]+|<link[^>]*stylesheet[^>]*//[^>]+", html
        )
        if found:
            raise PluginError(f"{path.name} loads {found[0]!r}: the site has to open without a network")


def notebook(path: Path) -> str:
    """Write a notebook as a page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    page = [f"```python\n{source}\n```" if kind == "code" else source for source, kind in sources]
    return "\n\n".join([*page, f"The same as a [notebook]({path.name})."]) + "\n"


def style_sheet() -> str:
    """Write the colours of code, by day and by night; wide tables and pictures stay within the page."""
    day, night = (
        HtmlFormatter(style=style).get_style_defs(f"[data-bs-theme={theme}] .highlight")
        for theme, style in (("light", "default"), ("dark", "monokai"))
    )
    wide = "[role=main] table { display: block; overflow-x: auto; }\n[role=main] img { max-width: 100%; }"
    return f"{day}\n{night}\n{wide}\n"


def settings() -> str:
    """Write the page of every setting."""
    page = [
        "# Every setting",
        "Generated from the configuration classes.  Give each with `--set KEY=VALUE`, or in a recipe.",
        *(
            "\n## Recipe",
            "The keys at the top of a recipe file.\n",
            *table(Recipe, skip=("corpus", "objective", "paper")),
        ),
    ]
    for section, kind in SECTIONS.items():
        page += [f"\n## {section}", f"{kind.__doc__}\n", *table(kind, f"{section}.")]
    for name in registry.method_names():
        method = registry.load_method(name)
        page += [f"\n## objective: {name}", f"{method.__doc__.splitlines()[0]}\n", *table(method.Config, "objective.")]
        for preset, changes in method.presets.items():
            changed = ", ".join(f"`{key}={value}`" for key, value in registry.preset_settings(changes).items())
            page += [f"\nPreset `{preset}`: {changed}."]
    page += [
        "\n## fit",
        "For `selfsent fit`, whose keys have no prefix; `corpus.*` that say how text is read, too.\n",
    ]
    page += table(FitConfig, skip=("corpus.",))
    page += ["\n## pretrain", "For `selfsent pretrain`, whose keys have no prefix.\n", *table(PretrainConfig)]
    page += ["\n## pretrain --size static\n", *table(StaticConfig)]
    page += ["\n## index", "For `selfsent index`, whose keys have no prefix.\n", *table(IndexConfig)]
    page += ["\n## mine", "For `selfsent pairs mine`, whose keys have no prefix.\n", *table(MineConfig)]
    page += ["\n## serve", "For `selfsent serve`, whose keys have no prefix.\n", *table(ServeConfig)]
    return "\n".join(page) + "\n"


def table(kind: type, prefix: str = "", skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the rows of one configuration class."""
    yield "| key | default | meaning | type |"
    yield "|---|---|---|---|"
    for setting in describe(kind, prefix):
        if not setting.key.startswith((*skip, *(f"{name}." for name in SECTIONS if not prefix and kind is Recipe))):
            default = "" if setting.default == "" else f"`{setting.default}`"
            cells = (f"`{setting.key}`", default, setting.description, setting.kind)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commands() -> str:
    """Write the page of every command, as its --help has it."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="selfsent")
    text = get_docs_for_click(obj=command, ctx=context, name="selfsent")
    return re.sub(r"^# `selfsent`$", "# Every command\n\nGenerated from the command line's own help.", text, flags=re.M)
