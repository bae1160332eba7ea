"""The folder of a model before any library reads it: where it is, which modules it names, whether it is as written."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from safetensors import SafetensorError, safe_open

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
PAIR = "PairModule"  # the one module that is not of sentence-transformers
UNIT = "_UnitLength"  # how the path of the Normalize that save_encoder adds ends: training and classifiers skip it
_INPUTS = ("Transformer", "StaticEmbedding")
_WEIGHTED = {*_INPUTS, "Dense", "LayerNorm", "WeightedLayerPooling"}
_MODULES = _WEIGHTED | {"Dropout", "Normalize", "Pooling", "WordWeights"}
# Of a model on the hub, no code, and pickles where it has no other weights.
_FETCHED = ("*.json", "*.safetensors", "*.txt", "*.model", atomic.CHECKSUMS)
_PICKLES = ("pytorch_model.bin", "*/pytorch_model.bin")
_SMALL = 1 << 16  # sizes that take no memory to speak of
_NOT_FETCHED = ("onnx/*", "openvino/*")
AGAIN = "copy the folder again, whole"


class ModuleEntry(NamedTuple):
    """One module of ``modules.json``."""

    kind: str  # the name of its class
    name: str
    folder: Path


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


def read_modules(folder: Path) -> list[ModuleEntry]:
    """Return the modules that a folder names; one without ``modules.json`` is a transformer alone.

    Raises:
        EncoderError: a file is damaged, or names a class that is not opened, weights that are missing or are a pickle.
    """
    verify_files(folder)
    settings = folder / "config_sentence_transformers.json"
    kind = read_table(settings).get("model_type", "SentenceTransformer") if settings.exists() else "SentenceTransformer"
    if kind != "SentenceTransformer":
        raise EncoderError(f"{folder} is no sentence encoder: its type is {kind!r}; give a SentenceTransformer")
    if not (folder / "modules.json").exists():
        if settings.exists():
            raise EncoderError(f"{folder} has no modules.json beside {settings.name}: {AGAIN}")
        entries = [ModuleEntry("Transformer", "0", folder)]
    else:
        entries = [_module(entry, folder) for entry in _read(folder / "modules.json", list)]
    if not entries or len({entry.name for entry in entries}) < len(entries):
        raise EncoderError(f"modules.json of {folder} does not fit: it names no module, or one twice; {AGAIN}")
    if [entry.kind for entry in entries] == [PAIR]:
        return entries
    unnamed = {path.parent for path in folder.glob("[0-9]_*/config.json")} - {entry.folder for entry in entries}
    if unnamed:
        raise EncoderError(f"modules.json of {folder} does not name {min(unnamed).name}, which lies in it: {AGAIN}")
    for position, entry in enumerate(entries):
        if (entry.kind in _INPUTS) != (position == 0):
            raise EncoderError(
                f"modules.json of {folder} does not fit: {entry.kind} stands at place {position}, and an encoder "
                f"begins with {' or '.join(_INPUTS)}, once; {AGAIN}"
            )
        _require_module(entry)
    return entries


def _module(entry: Any, folder: Path) -> ModuleEntry:  # noqa: ANN401 - whatever the file holds
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
    return ModuleEntry(kind, name, folder / path)


def _require_module(entry: ModuleEntry) -> None:
    """Refuse a module without its settings or weights, and what its loader would replace without a word."""
    if entry.kind == "Transformer" and not (entry.folder / "config.json").is_file():
        raise EncoderError(
            f"{entry.folder} holds no encoder: expected a config.json or modules.json, as save_pretrained writes"
        )
    if entry.kind == "StaticEmbedding" and not (entry.folder / "tokenizer.json").is_file():
        raise EncoderError(f"{entry.folder} has no tokenizer: expected tokenizer.json, which lists its words")
    if entry.kind in _WEIGHTED and not any(entry.folder.glob("model*.safetensors")):
        raise EncoderError(f"{entry.folder} has no model.safetensors, the weights of its {entry.kind}: {AGAIN}")
    if entry.kind == "StaticEmbedding":  # which has no settings, and may be stored in int8, with numbers of its rows
        for name, (kind, _) in read_headers(entry.folder).items():
            if name.startswith("embedding") and kind[0] not in "FB" and kind != "I8":
                raise EncoderError(f"{name} in the weights of {entry.folder} holds {kind}: give floats or int8")
    elif entry.kind in _WEIGHTED:
        _require_floats(entry)
    if entry.kind == "Dense":
        activation = read_table(entry.folder / "config.json").get("activation_function", "torch.nn.Tanh")
        if not str(activation).startswith("torch.nn."):
            raise EncoderError(
                f"{entry.folder} has the activation {str(activation)[:80]!r}: give one of torch.nn, which is no code "
                "of a model's own"
            )


def _require_floats(entry: ModuleEntry) -> None:
    """Refuse weights of whole numbers, and sizes beyond them, for which a library would take the memory first."""
    headers = read_headers(entry.folder)
    for name, (kind, _) in headers.items():
        if kind[0] not in "FB" and not name.endswith("_ids"):  # floats and bfloats; positions are no weights
            raise EncoderError(f"{name} in the weights of {entry.folder} holds whole numbers ({kind}): {AGAIN}")
    config = read_table(entry.folder / "config.json")
    sizes = {key: value for key, value in config.items() if isinstance(value, int)}
    if entry.kind == "Dense":
        sizes["in_features * out_features"] = math.prod(sizes.get(key, 0) for key in ("in_features", "out_features"))
    most = max(_SMALL, sum(count for _, count in headers.values()))
    for key, size in sizes.items():
        if size > most:
            raise EncoderError(f"config.json of {entry.folder} says {key} = {size}, and its weights are fewer: {AGAIN}")


def read_table(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        EncoderError: it cannot be read, or holds something else.
    """
    return _read(path, dict)


def _read(path: Path, kind: type[T]) -> T:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EncoderError(f"{path} is damaged or cannot be read ({first_line(error)}): {AGAIN}") from error
    if not isinstance(content, kind):
        wanted = "table" if kind is dict else "list"
        raise EncoderError(f"{path} is damaged: it holds a {type(content).__name__} and no {wanted}; {AGAIN}")
    return content


def read_headers(folder: Path) -> dict[str, tuple[str, int]]:
    """Return the data type of every tensor in the weights of a folder, and how many values it has; none is read."""
    headers: dict[str, tuple[str, int]] = {}
    for path in folder.glob("model*.safetensors"):
        with safe_open(path, framework="np") as weights:
            for name in weights.keys():  # noqa: SIM118 - no dict
                tensor = weights.get_slice(name)
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
