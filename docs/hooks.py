"""What MkDocs adds to the pages: every setting and every command from the code, and the project's own files."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import typer
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from typer.cli import get_docs_for_click

from selfsent import methods
from selfsent.cli import app
from selfsent.config import EncoderConfig, HardwareConfig, Recipe, TrainConfig
from selfsent.corpus.prepare import CorpusConfig
from selfsent.pretraining.static_vectors import StaticConfig
from selfsent.pretraining.train import PretrainConfig

ROOT = Path(__file__).parent.parent
# Files outside docs/ that are pages of the site, too.
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "LOG.md", "RESULTS.md", "benchmarks/README.md")
MODEL_CARD = "selfsent/builtin/encoder/README.md"
SECTIONS = {"train": TrainConfig, "corpus": CorpusConfig, "encoder": EncoderConfig, "hardware": HardwareConfig}


def on_files(files, config):
    """Add the generated pages and the project's files."""
    for name, content in {"settings.md": settings(), "commands.md": commands()}.items():
        files.append(File.generated(config, name, content=content))
    for name in (*PROJECT, MODEL_CARD):
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links between docs/ and the project's files lead to the pages of the site."""
    if page.file.src_uri in (*PROJECT, MODEL_CARD):
        return re.sub(r"\]\(docs/", "](", markdown)
    return re.sub(rf"\]\(\.\./(?=({'|'.join(map(re.escape, (*PROJECT, MODEL_CARD)))})[#)])", "](", markdown)


def on_post_build(config):
    """Refuse pages that would load anything from another server."""
    for path in Path(config.site_dir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        found = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//[^\"]+|<link[^>]*stylesheet[^>]*//[^>]+", html)
        if found:
            raise PluginError(f"{path.name} loads {found[0]!r}: the site has to open without a network")


def settings() -> str:
    """Write the page of every setting."""
    page = ["# Every setting", "Generated from the configuration classes.  Give each with `--set KEY=VALUE`, or in a recipe."]
    page += ["", "## Recipe", "", "The keys at the top of a recipe file.", "", *table(Recipe, "", skip=(*SECTIONS, "objective", "paper"))]
    for section, kind in SECTIONS.items():
        page += ["", f"## {section}", "", kind.__doc__ or "", "", *table(kind, f"{section}.")]
    for name in methods.method_names():
        method = methods.load_method(name)
        page += ["", f"## objective: {name}", "", *table(method.Config, "objective.")]
        for preset, changes in method.presets.items():
            changed = ", ".join(f"`{key}={value}`" for key, value in changes.items()) or "the defaults"
            page += ["", f"Preset `{preset}`: {changed}."]
    page += ["", "## pretrain", "", "For `selfsent pretrain`, whose keys have no prefix.", "", *table(PretrainConfig, "")]
    page += ["", "## pretrain --size static", "", *table(StaticConfig, "")]
    return "\n".join(page) + "\n"


def table(kind: type, prefix: str, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the rows of one configuration class."""
    yield "| key | default | meaning | type |"
    yield "|---|---|---|---|"
    yield from rows(kind, prefix, skip)


def rows(kind: type, prefix: str, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a row for each field; a field that is a configuration class itself becomes its rows."""
    described = getattr(kind, "__pydantic_fields__", {})  # of a pydantic dataclass, with the descriptions
    for field in dataclasses.fields(kind):
        if field.name in skip:
            continue
        known = described.get(field.name, field)
        if dataclasses.is_dataclass(field.type):
            yield from rows(field.type, f"{prefix}{field.name}.")
            continue
        default = known.default_factory() if callable(known.default_factory) else known.default
        required = "Undefined" in repr(default) or default is dataclasses.MISSING
        written = "required" if required else f"`{default if default != '' else repr(default)}`"
        text = getattr(known, "description", None) or ""
        kinds = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        kinds = re.sub(r"typing\.|collections\.abc\.|selfsent\.[\w.]*\.", "", kinds)
        cells = (f"`{prefix}{field.name}`", written, text, f"`{kinds}`")
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commands() -> str:
    """Write the page of every command, as its --help has it."""
    command = typer.main.get_command(app)
    context = typer.Context(command, info_name="selfsent")
    text = get_docs_for_click(obj=command, ctx=context, name="selfsent")
    return re.sub(r"^# `selfsent`$", "# Every command\n\nGenerated from the command line's own help.", text, flags=re.M)
