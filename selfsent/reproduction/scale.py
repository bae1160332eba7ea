"""From a row to what is trained: the published recipe, or a few steps from one base on the text that is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

from selfsent.config import FINITE, MANY, Recipe, read_recipe, setting
from selfsent.corpus.sources import DEMO
from selfsent.reproduction.spec import TextKind, Training, Untrained
from selfsent.training import train

SCALES = ("small", "full")
OPTION = {"sentences": "--corpus", "documents": "--documents", "pairs": "--pairs", "nli": "--nli"}
# What the objectives change at small scale: sizes, and a weight with which SCD does not destroy a small encoder.
_SMALLER: dict[str, tuple[str, ...]] = {
    "scd": ("objective.projector_width=1024", "objective.self_contrast_weight=0.1"),
    "denosent": ("objective.decoder_layers=4",),
    "declutr": ("objective.max_length=128",),
}
_UNLESS = {"objective.decoder_layers=4": "objective.denoise_weight=0.0"}  # which leaves it without effect


@dataclass(frozen=True, kw_only=True, config=FINITE)
class SmallScale:
    """How much a training is at small scale; everything else stays as published."""

    steps: int = setting(60, "of a training on sentences or pairs", ge=1, le=MANY)
    document_steps: int = setting(30, "of a training on documents", ge=1, le=MANY)
    batch_size: int = setting(64, "sentences or pairs", ge=2, le=1_000_000)
    document_batch_size: int = setting(16, "documents", ge=2, le=1_000_000)
    learning_rate: float = setting(1e-4, "peak, of every method", gt=0, le=10)
    select: Literal["last", "published"] = setting(
        "last", "weights that are kept; published: the best on development sets, which takes an evaluation of each run"
    )
    evaluations: int = setting(4, "on development sets while a run trains that is watched", ge=1, le=1000)
    max_texts: int = setting(50_000, "training texts that are read", ge=2, le=MANY)
    pooling: str = setting("mean", "of every encoder that the row does not give one; none: the published one")
    classifier: str = setting("senteval_fast", "of labelled tasks; published: senteval_full")
    threads: int | None = setting(None, "None: one for each usable core", ge=1, le=4096)


@plain_dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """What a reproduction is made with; the same for all of its tables and figures."""

    scale: str = "full"  # or "small"
    small: SmallScale = field(default_factory=SmallScale)
    seeds: int = 1
    first_seed: int = 42
    base: str | None = None  # in place of every published base
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)  # sentences, documents, pairs, nli
    data: str | None = None
    checkpoints: Mapping[str, str] = field(default_factory=dict)  # name of a row -> model
    left_out: Sequence[str] = ()  # tasks

    @property
    def shared_base(self) -> str | None:
        """The base of every row, where it is not the published one."""
        return self.base or ("builtin-mlm" if self.scale == "small" else None)

    @property
    def classifier(self) -> str:
        """The classifier of labelled tasks."""
        return self.small.classifier if self.scale == "small" else "senteval_full"


def base_of(source: Training | Untrained, options: ReproduceOptions) -> str:
    """Return the base that a row starts from."""
    if options.shared_base:
        return options.shared_base
    return source.base if isinstance(source, Untrained) else str(read_recipe(source.recipe)["base"])


def pooling_of(source: Untrained, options: ReproduceOptions) -> str | None:
    """Return the pooling of a row without training; None: the base's own."""
    if options.scale == "small" and source.start and options.small.pooling != "none":
        return options.small.pooling
    return source.pooling


def kind_of(source: Training, options: ReproduceOptions) -> TextKind:
    """Return the kind of text that a row is trained on."""
    return source.small_text or source.text if options.scale == "small" else source.text


def texts_of(source: Training, options: ReproduceOptions) -> tuple[str, ...]:
    """Return what a row is trained on; empty where nothing was given and the published text is out of scale."""
    kind = kind_of(source, options)
    if options.texts.get(kind):
        return tuple(options.texts[kind])
    if options.scale == "full":
        texts = read_recipe(source.recipe)["texts"]
        return (texts,) if isinstance(texts, str) else tuple(texts)
    return () if kind == "pairs" else (DEMO,)


def training_recipe(source: Training, seed: int, options: ReproduceOptions) -> Recipe:
    """Return the recipe of a row for one seed.

    Raises:
        ConfigurationError: a setting does not fit.
    """
    method = str(read_recipe(source.recipe)["method"])
    watched = options.scale == "full" or source.watched or options.small.select == "published"
    shared: dict[str, object] = {
        "base": base_of(source, options),
        "corpus": list(texts_of(source, options)) or None,
        "seed": seed,
        "data": options.data if watched else None,
    }
    if options.scale == "full":
        settings = list(source.settings)
        if source.fraction < 1:
            settings.append(f"train.epochs={source.fraction}")
        if options.data is None:
            settings.append("train.select=last")
        return train.resolve(source.recipe, settings=settings, **shared)  # type: ignore[arg-type]
    changed = source.settings if source.small is None else source.small
    small = _small_settings(method, source, watched and options.data is not None, options)
    settings = [
        *_published_settings(source.recipe, "encoder", "train"),
        *small,
        *_published_settings(source.recipe, "objective"),
        *changed,
    ]
    return train.resolve(method, settings=settings, **shared)  # type: ignore[arg-type]


def _published_settings(recipe: str, *sections: str) -> list[str]:
    """Return what tables of a shipped recipe set beyond its method."""
    tables = ((name, read_recipe(recipe).get(name, {})) for name in sections)
    return [f"{name}.{key}={value}" for name, table in tables for key, value in table.items()]


def _small_settings(method: str, source: Training, watched: bool, options: ReproduceOptions) -> list[str]:
    """Return what small scale changes in every training of a method."""
    small = options.small
    documents = kind_of(source, options) == "documents"
    steps = max(1, round((small.document_steps if documents else small.steps) * source.fraction))
    settings = [
        f"train.steps={steps}",
        f"train.batch_size={small.document_batch_size if documents else small.batch_size}",
        f"train.learning_rate={small.learning_rate}",
        "train.schedule=linear",
        "train.warmup_steps=0",
        f"train.evaluate_every={max(1, steps // small.evaluations) if watched else 0}",
        "train.baselines=false",
        f"corpus.max_texts={small.max_texts}",
        "corpus.held_out=0",
    ]
    if not watched or small.select == "last":
        settings.append("train.select=last")
    if small.pooling != "none":
        settings.append(f"encoder.pooling={small.pooling}")
    if small.threads:
        settings.append(f"hardware.threads={small.threads}")
    smaller = [key for name, keys in _SMALLER.items() if method.startswith(name) for key in keys]
    return settings + [key for key in smaller if _UNLESS.get(key) not in source.settings]


def explain_scale(options: ReproduceOptions) -> str:
    """Say in one sentence how the runs differ from the published ones."""
    if options.scale == "full":
        changed = [f"base {options.base}"] if options.base else []
        changed += [f"{OPTION[kind][2:]} {' '.join(texts)}" for kind, texts in options.texts.items() if texts]
        return "Full scale: the published recipes" + (f", but for {', '.join(changed)}." if changed else ".")
    small = options.small
    read = [f"{kind} of {' '.join(texts)}" for kind, texts in options.texts.items() if texts]
    if not options.texts.get("sentences") or not options.texts.get("documents"):
        read.append(f"otherwise text of {DEMO}" if read else f"text of {DEMO}")
    return (
        f"Small scale: encoders start from {options.shared_base}; {small.steps} steps of {small.batch_size} texts or "
        f"{small.document_steps} of {small.document_batch_size} documents, peak rate {small.learning_rate:g} falling "
        f"to zero, {'last weights' if small.select == 'last' else 'weights selected as published'}, pooling "
        f"{small.pooling} where the row gives none; SCD with w_S 0.1 and a projector of 1,024, DenoSent "
        f"with 4 decoder layers, DeCLUTR with spans of at most 128 tokens; classifier {small.classifier}; "
        f"{', '.join(read)}."
    )
