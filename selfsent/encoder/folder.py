"""The folder of a model, read once before any library reads it: which modules it names, whether it is as written."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from selfsent.encoder.affine import AffineMap
from selfsent.errors import EncoderError, SelfsentError, first_line
from selfsent.storage import atomic

T = TypeVar("T")
# How every library opens a folder: it runs no code that a model brings along, and fetches nothing that one names.
CLOSED: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
_HERE = Path(__file__).parent.parent / "builtin"
SHIPPED = {  # the encoders that come with the package
    "builtin": _HERE / "encoder",
    "builtin-static": _HERE / "static",
    "builtin-mlm": _HERE / "masked_lm",  # which builtin was trained from; with the head that guesses words
}
SETTINGS = "config_sentence_transformers.json"
PAIR = "PairModule"  # the one module that is not of sentence-transformers
PAIR_FILE = "pair.json"  # with the fractions of the cosine that its encoders have
BEHIND_FILE = "behind.safetensors"  # the map behind a pair, if there is one
UNIT = "_UnitLength"  # how the path of the Normalize that save_encoder adds ends: training and classifiers skip it
_INPUTS = ("Transformer", "StaticEmbedding")
_WEIGHTED = {*_INPUTS, "Dense", "LayerNorm", "WeightedLayerPooling"}
_CONFIGURED = {*_WEIGHTED, "Pooling"} - {"StaticEmbedding"}  # whose config.json is looked at; WordWeights' is long
_MODULES = _WEIGHTED | {"Dropout", "Normalize", "Pooling", "WordWeights"}
# Of a model on the hub, no code, and pickles where it has no other weights.
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.model", atomic.CHECKSUMS)
_PICKLES = ("pytorch_model.bin", "*/pytorch_model.bin")
_SMALL = 1 << 16  # sizes that take no memory to speak of
_NOT_FETCHED = ("onnx/*", "openvino/*")
AGAIN = "copy the folder again, whole"


@dataclass(frozen=True)
class ModuleEntry:
    """One module of ``modules.json``, read but for its weights."""

    kind: str  # the name of its class
    path: Path
    config: dict[str, Any] = field(default_factory=dict)  # config.json, where it is looked at here
    weights: Sequence[Path] = ()  # their files
    headers: dict[str, tuple[str, int]] = field(default_factory=dict)  # of each tensor in them data type and size


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """The folder of a model, verified and read once: all that says how it is opened but weights and vocabulary."""

    name: str  # what messages call it
    path: Path
    modules: Sequence[ModuleEntry]  # in their order; of a folder without modules.json a transformer alone
    listed: bool  # whether it has that file
    settings: dict[str, Any]  # config_sentence_transformers.json; empty where there is none, as the next two
    texts: dict[str, Any] = field(default_factory=dict)  # sentence_bert_config.json: how a transformer reads texts
    tokens: dict[str, Any] = field(default_factory=dict)  # tokenizer_config.json of a transformer
    encoders: "Sequence[ModelFolder]" = ()  # of a pair
    fractions: Sequence[float] = ()  # of the cosine that they have
    behind: AffineMap | None = None  # a pair

    @property
    def kinds(self) -> list[str]:
        """The classes of its modules."""
        return [module.kind for module in self.modules]

    @property
    def arguments(self) -> dict[str, Any]:
        """What a SentenceTransformer of the same modules is given, for the settings of this folder."""
        names = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")
        return {name: self.settings.get(name) for name in names}

    @property
    def unit_added(self) -> bool:
        """Whether its last module is the Normalize that ``save_encoder`` adds."""
        return self.modules[-1].path.name.endswith(UNIT)

    @classmethod
    def read(cls, path: Path, name: str) -> "ModelFolder":
        """Read a folder.

        Raises:
            EncoderError: a file is damaged, or names a class that is not opened, weights that are missing or are a
                pickle.
        """
        verify_files(path)
        settings, listed = read_settings(path), (path / "modules.json").exists()
        if (kind := settings.get("model_type", "SentenceTransformer")) != "SentenceTransformer":
            raise EncoderError(f"{path} is no sentence encoder: its type is {kind!r}; give a SentenceTransformer")
        if not listed and (path / SETTINGS).exists():
            raise EncoderError(f"{path} has no modules.json beside {SETTINGS}: {AGAIN}")
        modules = _read_modules(path) if listed else [ModuleEntry("Transformer", path)]
        record = cls(name=name, path=path, modules=modules, listed=listed, settings=settings)
        if record.kinds == [PAIR]:
            fractions = _read_fractions(path)
            encoders = [cls.read(path / str(number), f"{name}/{number}") for number in range(len(fractions))]
            return replace(record, encoders=encoders, fractions=fractions, behind=_read_behind(path))
        _require_order(record)
        first = modules[0].path if modules[0].kind == "Transformer" else None
        return replace(
            record,
            modules=[_read_module(module) for module in modules],
            texts=_read_if_there(first and first / "sentence_bert_config.json"),
            tokens=_read_if_there(first and first / "tokenizer_config.json"),
        )


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: of one that ships, or as given; one on the hub is fetched into the hub's cache.

    Of the folder of a run or of a selection it is the ``model`` in it.

    Raises:
        EncoderError: no such folder or name.
    """
    if str(name) in SHIPPED:
        return SHIPPED[str(name)]
    folder, name = Path(name), str(name)
    require_plain(folder)
    if folder.is_dir() and not (folder / "modules.json").exists() and (folder / "model" / "modules.json").is_file():
        folder = folder / "model"
    if folder.exists():
        return folder
    from huggingface_hub import snapshot_download

    try:
        if len(folder.parts) > 2 or folder.is_absolute():
            raise OSError("no such folder")
        found = Path(snapshot_download(name, allow_patterns=[*_FETCHED], ignore_patterns=[*_NOT_FETCHED]))
        if not any(found.rglob("model*.safetensors")):  # read as tensors alone
            found = Path(
                snapshot_download(name, allow_patterns=[*_FETCHED, *_PICKLES], ignore_patterns=[*_NOT_FETCHED])
            )
    except Exception as error:  # no such name, no connection, no permission: each layer has its own
        raise EncoderError(
            f"model {name!r} cannot be found ({first_line(error)}): give 'builtin', a folder, or a name on the hub"
        ) from error
    return found


def _require_order(folder: ModelFolder) -> None:
    """Refuse modules in an order that makes no encoder, and one that lies in the folder and is not named."""
    path = folder.path
    unnamed = {config.parent for config in path.glob("[0-9]_*/config.json")} - {
        module.path for module in folder.modules
    }
    if unnamed:
        raise EncoderError(f"modules.json of {path} does not name {min(unnamed).name}, which lies in it: {AGAIN}")
    for position, kind in enumerate(folder.kinds):
        if (kind in _INPUTS) != (position == 0):
            raise EncoderError(
                f"modules.json of {path} does not fit: {kind} stands at place {position}, and an encoder begins with "
                f"{' or '.join(_INPUTS)}, once; {AGAIN}"
            )


def _read_modules(folder: Path) -> list[ModuleEntry]:
    entries = _read(folder / "modules.json", list)
    named = dict(_module(entry, folder) for entry in entries)
    if not named or len(named) < len(entries):
        raise EncoderError(f"modules.json of {folder} does not fit: it names no module, or one twice; {AGAIN}")
    return list(named.values())


def _module(entry: Any, folder: Path) -> tuple[str, ModuleEntry]:  # noqa: ANN401 - whatever the file holds
    fields = [entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path", "name")]
    if not all(isinstance(field, str) for field in fields):
        raise EncoderError(
            f"modules.json of {folder} does not fit: an entry is {str(entry)[:80]!r}, and each has a type, a path and "
            f"a name; {AGAIN}"
        )
    reference, path, name = map(str, fields)
    library, _, _ = reference.partition(".")
    kind = reference.rpartition(".")[2]
    if kind not in {"sentence_transformers": _MODULES, "selfsent": {PAIR}}.get(library, set()):
        raise EncoderError(
            f"{folder} names the module {reference[:80]!r}, which would run code of its own: known modules are those "
            f"of sentence-transformers called {', '.join(sorted(_MODULES))}"
        )
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise EncoderError(f"modules.json of {folder} names the place {path[:80]!r}, which is not inside the folder")
    return name, ModuleEntry(kind, folder / path)


def _read_module(module: ModuleEntry) -> ModuleEntry:
    """Read a module; refuse one without its settings or weights, and what its loader would replace without a word."""
    kind, path = module.kind, module.path
    if kind == "Transformer" and not (path / "config.json").is_file():
        raise EncoderError(
            f"{path} holds no encoder: expected a config.json or modules.json, as save_pretrained writes"
        )
    if kind == "StaticEmbedding" and not (path / "tokenizer.json").is_file():
        raise EncoderError(f"{path} has no tokenizer: expected tokenizer.json, which lists its words")
    weights = list(path.glob("model*.safetensors"))
    if kind in _WEIGHTED and not weights and (path / "onnx").is_dir():
        raise EncoderError(
            f"{path} holds ONNX alone, which onnxruntime runs: give the folder that it was exported from"
        )
    if kind in _WEIGHTED and not weights:
        raise EncoderError(f"{path} has no model.safetensors, the weights of its {kind}: {AGAIN}")
    headers = _read_headers(weights) if kind in _WEIGHTED else {}
    if kind == "StaticEmbedding":  # which has no settings, and may be stored in int8, with numbers of its rows
        for name, (numbers, _) in headers.items():
            if name.startswith("embedding") and numbers[0] not in "FB" and numbers != "I8":
                raise EncoderError(f"{name} in the weights of {path} holds {numbers}: give floats or int8")
    config = read_table(path / "config.json") if kind in _CONFIGURED else {}
    if kind in _WEIGHTED & _CONFIGURED:
        _require_floats(module, config, headers)
    if kind == "Dense":
        activation = config.get("activation_function", "torch.nn.Tanh")
        if not str(activation).startswith("torch.nn."):
            raise EncoderError(
                f"{path} has the activation {str(activation)[:80]!r}: give one of torch.nn, which is no code of a "
                "model's own"
            )
    return ModuleEntry(kind, path, config, weights, headers)


def _require_floats(module: ModuleEntry, config: dict[str, Any], headers: dict[str, tuple[str, int]]) -> None:
    """Refuse weights of whole numbers, and sizes beyond them, for which a library would take the memory first."""
    for name, (kind, _) in headers.items():
        if kind[0] not in "FB" and not name.endswith("_ids"):  # floats and bfloats; positions are no weights
            raise EncoderError(f"{name} in the weights of {module.path} holds whole numbers ({kind}): {AGAIN}")
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    if module.kind == "Dense":
        sizes["in_features * out_features"] = math.prod(sizes.get(key, 0) for key in ("in_features", "out_features"))
    most = max(_SMALL, sum(count for _, count in headers.values()))
    for key, size in sizes.items():
        if size > most:
            raise EncoderError(f"config.json of {module.path} says {key} = {size}, and its weights are fewer: {AGAIN}")


def _read_fractions(folder: Path) -> list[float]:
    fractions = read_table(folder / PAIR_FILE).get("weights")
    if (
        not isinstance(fractions, list)
        or len(fractions) < 2
        or not all(isinstance(fraction, float) and fraction > 0 for fraction in fractions)
    ):
        raise EncoderError(
            f"{folder / PAIR_FILE} is damaged: its weights are {str(fractions)[:80]}, and they are fractions"
        )
    return fractions


def _read_behind(folder: Path) -> AffineMap | None:
    if not (folder / BEHIND_FILE).is_file():
        return None
    try:
        return AffineMap(**load_file(folder / BEHIND_FILE))
    except (SafetensorError, TypeError, EncoderError) as error:
        raise EncoderError(f"{folder / BEHIND_FILE} is damaged: {AGAIN}") from error


def read_settings(folder: Path) -> dict[str, Any]:
    """Return what ``config_sentence_transformers.json`` says; nothing where there is none."""
    return _read_if_there(folder / SETTINGS)


def _read_if_there(path: Path | None) -> dict[str, Any]:
    return read_table(path) if path and path.exists() else {}


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        EncoderError: it cannot be read, or holds something else.
    """
    return _read(path, dict)


def _read(path: Path, kind: type[T]) -> T:
    require_plain(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EncoderError(f"{path} is damaged or cannot be read ({first_line(error)}): {AGAIN}") from error
    if not isinstance(content, kind):
        wanted = "table" if kind is dict else "list"
        raise EncoderError(f"{path} is damaged: it holds a {type(content).__name__} and no {wanted}; {AGAIN}")
    return content


def _read_headers(weights: Iterable[Path]) -> dict[str, tuple[str, int]]:
    headers: dict[str, tuple[str, int]] = {}
    for path in weights:
        with safe_open(path, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - no dict
                tensor = tensors.get_slice(name)
                headers[name] = tensor.get_dtype(), math.prod(tensor.get_shape())
    return headers


def verify_files(folder: Path) -> None:
    """Compare the files of a model with the checksums that were written with them, if there are any.

    A model's card, which people write into, may change.

    Raises:
        EncoderError: a file is missing, has changed, or is none.
    """
    sums = folder / atomic.CHECKSUMS
    for path in (sums, *(path for depth in (1, 2, 3) for path in folder.glob("/".join(["[!.]*"] * depth)))):
        require_plain(path)
    for name, digest in read_table(sums).items() if sums.exists() else ():
        path = folder / name
        if path.suffix == ".md":
            continue
        if not path.is_file():
            raise EncoderError(f"{folder} has no {name[:80]}, which was written with it: {AGAIN}")
        try:
            same = atomic.file_digest(path) == digest
        except OSError as error:
            raise EncoderError(f"{path} cannot be read ({error.strerror}): {AGAIN}") from error
        if not same:
            raise EncoderError(
                f"{path} was cut off or changed since it was written: {AGAIN}, or remove {sums} if you changed it "
                "yourself"
            )


def require_plain(path: Path) -> None:
    """Refuse a pipe, a socket or a device, and a link to one, which may never end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise EncoderError(f"{path} is a pipe, a socket or a device: a model consists of files; {AGAIN}")


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Turn whatever a library raises over the files of a model into one sentence; they may hold anything."""
    try:
        yield
    except SelfsentError:
        raise
    except SafetensorError as error:
        raise EncoderError(
            f"the weights in {name} are cut short or damaged ({error}): wait if they are still being written, "
            "or copy them again"
        ) from error
    except BaseException as error:
        # The Rust of tokenizers panics with an exception that is none of Python's.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        if "trust_remote_code" in str(error):
            raise EncoderError(
                f"{name} brings Python code of its own that it would run (auto_map in its JSON files), which is never "
                "done: give a model whose class is part of transformers"
            ) from error
        reason = first_line(error)
        if "processing class" in reason:
            reason = "its tokenizer is missing or damaged; expected a whole tokenizer.json and tokenizer_config.json"
        elif not isinstance(error, OSError | ValueError):
            reason = f"one of its files is damaged or means something else ({type(error).__name__}: {reason})"
        raise EncoderError(f"cannot open {name!r} as an encoder: {reason}") from error
