"""A model folder in; out: ONNX, int8, static vectors, a smaller or a partly whitened encoder, judged before it is kept.

onnx.py           an encoder to one ONNX graph; int8
onnx_session.py   texts to vectors by onnxruntime
static.py         any encoder to static word vectors
gate.py           the verdict between the encoder and its export
"""

import copy
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

from selfsent.config import build_config
from selfsent.corpus.in_memory import source_names
from selfsent.corpus.prepare import draw_documents
from selfsent.corpus.settings import CorpusConfig
from selfsent.corpus.sources import Document
from selfsent.encoder.encode import encode
from selfsent.encoder.folder import read_table
from selfsent.encoder.inspect import tokenizer_of
from selfsent.encoder.load import load_encoder
from selfsent.encoder.open import as_encoder
from selfsent.encoder.pair_module import parts_of
from selfsent.encoder.partial_whitening import fit_partial_whitening, require_one_encoder, whiten_encoder, whole_width
from selfsent.encoder.principal_axes import learn_axes, turn_encoder
from selfsent.encoder.released import find_encoder
from selfsent.encoder.save import save_encoder, unit_length
from selfsent.encoder.search_settings import read_search_settings, write_search_settings
from selfsent.errors import ConfigurationError, CorpusError, EncoderError, unknown
from selfsent.evaluation.label_free.documents import parse_documents
from selfsent.evaluation.label_free.material import DOCUMENTS, VerdictMaterial, choose_tests, find_trained
from selfsent.export import onnx
from selfsent.export.gate import ExportJudgement, export_card, judge_export
from selfsent.export.onnx_session import GRAPHS, OnnxEncoder
from selfsent.export.static import LEAST, WIDTH, bare_tokenizer, distil_static
from selfsent.progress import SILENT, Progress
from selfsent.runs.card import shown_name, write_card
from selfsent.runtime import hardware
from selfsent.runtime.printed import Printed, Shown
from selfsent.storage import atomic, locks
from selfsent.storage.provenance import versions
from selfsent.storage.run_folder import PLAN, Run
from selfsent.text import clean

FORMATS = ("onnx", "onnx-int8", "static", "smaller", "whitened")
_FROM_TEXT = ("static", "smaller", "whitened")  # that are learned from text
FACTS = "export.json"  # what was exported, from what, and the figures of the gate
_TEXTS = 20_000  # that they are learned from, at most
_PASSAGE = 50  # words
_JUDGED = 60  # documents of the verdict, at least: its tests need 50
_UNCUT = 1_000_000  # tokens of a text that static vectors read: fastembed wants a number
_LEARNED = 5_000  # documents, at most
_OF_RUN = ("column", "encoding", "title_column", "summary_column", "language", "split")  # that its text is read with


@dataclass(frozen=True, kw_only=True, repr=False)
class Exported(Printed):
    """What was written, and what the gate measured."""

    folder: Path
    megabytes: float  # of the whole folder
    judgement: ExportJudgement

    def shown(self) -> Shown:
        """Return what the gate says, and what was written."""
        kept = ", which lost and is kept all the same" if self.judgement.lost else ""
        return Shown([self.judgement.sentence, f"wrote {self.folder}: {self.megabytes:.1f} MB{kept}"])


def export_model(
    model: str | Path,
    to: str,
    *,
    corpus: Sequence[str | Path] | str | Path | None = None,
    out: str | Path | None = None,
    accept_loss: bool = False,
    overwrite: bool = False,
    documents: int = DOCUMENTS,
    width: int = WIDTH,
    language: str = "en",
    column: str | None = None,
    precision: str = "auto",
    progress: Progress = SILENT,
) -> Exported:
    """Write an encoder for another runtime, smaller, or partly whitened, unless the verdict finds that it lost by it.

    The export is refused where the paired 95 % interval of its score less the encoder's lies below zero.

    Args:
        model: a folder, the folder of a run, or a name on the hub.
        to: "onnx", "onnx-int8" (both need the extra ``onnx``), "static", "smaller" (``encoder.principal_axes``) or
            "whitened" (``encoder.partial_whitening``).
        corpus: text without labels, for the verdict, and to learn static vectors or whitening from.  Default: that of
            the run, or of the selection.
        out: the folder to write.  Default: ``exports/`` and the name of the model and of the format.
        accept_loss: keep an export that lost; its card says what it lost.
        overwrite: replace an earlier export; nothing else is ever replaced.
        documents: of the verdict, at most.
        width: of "static" and "smaller".
        language: of the sentence-splitting rules.
        column: of tables; None: "text", or for the text of a run what it read.
        precision: of the encoder's own vectors: "fp32", "bf16" or "auto".

    Raises:
        UserError: no such format, model or text; a layer without an ONNX operator; an export that lost or exists.

    Examples:
        >>> exported = selfsent.export_model("runs/tickets", "onnx", out="exports/tickets")
    """
    _require_format(to, width)
    folder = find_trained(model)
    sources = _sources(folder, corpus)
    target = Path(out) if out is not None else Path("exports") / f"{_name_of(model)}-{to}"
    _require_ours(target, overwrite)
    encoder = load_encoder(folder)
    if to not in _FROM_TEXT:
        onnx.require_one_graph(encoder, str(model))
    elif to == "whitened":
        require_one_encoder(encoder)
    reading = _reading(folder, language, column, own=corpus is None)
    drawn = _draw(sources, documents, reading, progress) if to in _FROM_TEXT else []
    # They are learned from what the verdict does not look at: it takes half as many again as it is given.
    most = min(documents, max(_JUDGED, len(drawn) // 3)) if drawn else documents
    material = choose_tests(folder, sources, documents=most, reading=reading, progress=progress)
    with locks.exclusive(target, folder=False), atomic.replacing(target) as scratch:
        scratch.mkdir()
        if to in _FROM_TEXT:
            texts = _texts(drawn, material, reading.language)
            encoder = encoder.to(hardware.choose_hardware().device)
            save_encoder(_learn(encoder, to, texts, width, precision, progress), scratch)
            if to != "static" and (kept := read_search_settings(find_encoder(folder))):
                write_search_settings(scratch, replace(kept, weights=()))  # which are those of a pair
        else:
            _write_onnx(encoder, scratch, int8=to == "onnx-int8")
        judgement = _judge(encoder, scratch, to, material, precision, progress)
        if judgement.lost and not accept_loss:
            raise EncoderError(
                f"{to} loses, and nothing was written.  {judgement.sentence}  Add --accept-loss to keep it all the same"
            )
        size = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file()) / 1e6
        facts = {"model": shown_name(model), "to": to, "megabytes": round(size, 2), "versions": versions()}
        if to not in _FROM_TEXT and onnx.tokenizer_count(encoder) > 1:
            facts["tokenizers"] = onnx.tokenizer_count(encoder)
        atomic.write_sealed(scratch / FACTS, {**facts, **judgement.as_dict(), "accepted_loss": judgement.lost})
        write_card(scratch, export_card(facts, judgement, name=target.name, language=reading.language))
    return Exported(folder=target, megabytes=size, judgement=judgement)


def _require_format(to: str, width: int) -> None:
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if width < 1:
        raise ConfigurationError(f"width {width} does not fit: vectors have 1 dimension or more")
    if to not in _FROM_TEXT:
        for package in ("onnx", "onnxscript", "onnxruntime"):
            onnx.require_onnx(package)


def exported_vectors(
    folder: Path, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
) -> NDArray[np.float32]:
    """Return the (N, D) vectors that an export gives texts, by the runtime that it was written for."""
    if any((folder / name).is_file() for name in GRAPHS):
        return OnnxEncoder(folder).encode(texts, prompt=prompt, progress=progress)
    return encode(load_encoder(folder), texts, prompt=prompt, progress=progress)


def _judge(
    encoder: SentenceTransformer, folder: Path, to: str, material: VerdictMaterial, precision: str, progress: Progress
) -> ExportJudgement:
    """Compare an encoder with its export, each behind its own prompts."""
    texts, reads = material.tests.prompted, as_encoder(load_encoder(folder) if to in _FROM_TEXT else encoder)
    return judge_export(
        material.tests,
        texts.embed(encoder, precision=precision, progress=progress),
        texts.encode(partial(exported_vectors, folder, progress=progress), reads.task_prompt),
        note=material.note,
        same_axes=to not in _FROM_TEXT,
    )


def _learn(
    encoder: SentenceTransformer, to: str, texts: Sequence[str], width: int, precision: str, progress: Progress
) -> SentenceTransformer:
    """Return static vectors of an encoder, or a copy of it with fewer dimensions or partly whitened."""
    if to == "static":
        return distil_static(encoder, texts, width=width, precision=precision, progress=progress)
    if to == "smaller":
        axes = learn_axes(encoder, list(texts), width, precision=precision, progress=progress)
        return turn_encoder(copy.deepcopy(encoder), axes)
    with whole_width(encoder):
        vectors = encode(as_encoder(encoder).before_unit(), texts, precision=precision, progress=progress)
    return whiten_encoder(copy.deepcopy(encoder), fit_partial_whitening(vectors))


def _write_onnx(encoder: SentenceTransformer, folder: Path, *, int8: bool) -> None:
    """Write graph, tokenizer and settings; the layers' own weights are in the graph alone."""
    encoder = unit_length(encoder)
    save_encoder(encoder, folder)
    parts = parts_of(encoder)
    # What lies in folders inside that of one encoder is asked for by sentence-transformers, whatever the graph holds.
    for weights in (folder.rglob if parts else folder.glob)("model*.safetensors"):
        weights.unlink()
    for sums in folder.rglob(atomic.CHECKSUMS):
        sums.unlink()
    for settings in folder.rglob("sentence_bert_config.json"):
        # Arguments of the torch class, which loaders of a graph would hand to a class that does not know them.
        content = {key: value for key, value in read_table(settings).items() if key != "model_args"}
        settings.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    _place_tokenizers(encoder, folder)
    plain, small = (folder / name for name in GRAPHS)
    plain.parent.mkdir()
    onnx.write_graph(encoder, plain)
    if int8:
        onnx.quantize_graph(plain, small)
        plain.unlink()


def _place_tokenizers(encoder: SentenceTransformer, folder: Path) -> None:
    """Leave tokenizers where they are looked for: those of a pair each in a folder, or one for all of them."""
    parts = parts_of(encoder)
    for number, part in enumerate(parts):
        if isinstance(part[0], StaticEmbedding):  # no runtime is to add special tokens
            bare_tokenizer(part).save(str(folder / str(number) / "tokenizer.json"))
    if not parts and isinstance(encoder[0], StaticEmbedding):
        tokenizer = tokenizer_of(encoder)  # which adds none
        tokenizer.model_max_length = _UNCUT
        tokenizer.save_pretrained(folder)
        (folder / "config.json").write_text('{"model_type": "static"}\n', encoding="utf-8")
    if parts and onnx.share_tokens(parts):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
            if (folder / "0" / name).is_file():
                shutil.copyfile(folder / "0" / name, folder / name)


def _reading(model: str | Path, language: str, column: str | None, *, own: bool) -> CorpusConfig:
    """Return how text is read: columns and splitting of the run's ``own`` text are those that it was trained with."""
    settings = {} if language == CorpusConfig.language else {"language": language}
    settings |= {} if column is None else {"column": column}
    corpus = _own_text(model)[1] if own else {}
    settings = {name: corpus[name] for name in _OF_RUN if corpus.get(name) is not None} | settings
    return build_config(CorpusConfig, settings, "corpus")


def _draw(sources: Sequence[str], documents: int, reading: CorpusConfig, progress: Progress) -> list[Document]:
    return draw_documents(sources, reading, 2 * documents + _LEARNED, progress)


def _texts(drawn: Sequence[Document], material: VerdictMaterial, language: str) -> list[str]:
    """Return sentences, and passages of some sentences, of documents that the verdict does not look at."""
    judged = {document.text for document in material.documents}
    others = [document for document in drawn if document.text not in judged]
    texts: list[str] = []
    for document in parse_documents(others, language, len(others)):
        if len(texts) >= _TEXTS:
            break
        texts += document.sentences
        for start in range(0, len(document.sentences), 3):
            joined = " ".join(document.sentences[start : start + 3])
            texts.append("".join(clean.with_gaps(joined)[:_PASSAGE]).strip())
    if len(texts) < LEAST:
        raise CorpusError(
            f"{len(others):,} of {len(drawn):,} documents are left to learn from beside those that the verdict takes, "
            f"with {len(texts)} sentences and passages of {LEAST} that are needed: give more documents"
        )
    return texts[:_TEXTS]


def _sources(model: str | Path, corpus: Sequence[str | Path] | str | Path | None) -> list[str]:
    """Return the sources that were given, or those of the run or the selection of a model."""
    if corpus is not None:
        return source_names(corpus)
    if texts := _own_text(model)[0]:
        return texts
    raise ConfigurationError(
        f"no text is known to judge an export of {model} by: give some of yours, without labels, with --corpus"
    )


def _own_text(model: str | Path) -> tuple[list[str], dict[str, Any]]:
    """Return the text that the run or the selection of a model read, and the settings that it was read with."""
    folder = Path(model).parent
    if Path(model).name == "model" and (folder / "config.json").is_file():
        recipe = Run(folder).config().get("recipe", {})
        return [*map(str, recipe.get("texts", ()))], recipe.get("corpus") or {}
    if Path(model).name.startswith("model") and (folder / PLAN).is_file():
        asked = atomic.read_sealed(folder / PLAN, "name the text with --corpus")["asked"]
        return asked["sources"], asked["settings"]["corpus"]
    return [], {}


def _name_of(model: str | Path) -> str:
    """Return the name that people know a model by: that of the run where its folder is called model."""
    path = Path(model)
    return path.resolve().parent.name if path.name == "model" else path.resolve().name


def _require_ours(target: Path, overwrite: bool) -> None:
    """Refuse an output that exists, unless it is an export that may be replaced."""
    if overwrite and (target / FACTS).is_file():
        return
    if overwrite and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigurationError(
            f"output {target} is no export (it has no {FACTS}): choose another --out, or remove it"
        )
    Run.require_free(target, "choose another --out, or add --overwrite to replace an earlier export")
