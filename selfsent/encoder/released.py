"""Open checkpoints as the methods' authors released them, by rewriting each once as a plain folder in the cache.

Known are the folders that SimCSE, SCD and WhitenedCSE train (``BertForCL``, ``RobertaForCL``), DenoSent's, DeCLUTR's
AllenNLP archive, and every folder whose weights are a ``pytorch_model.bin``.  torch reads such weights as tensors alone
(``weights_only``); a file that asks for more is refused, and so is one that would unpack to more than it may hold.

Layouts: princeton-nlp/SimCSE @ 49fa580, SAP-samples/acl2022-self-contrastive-decorrelation @ fb1438a,
SupstarZh/WhitenedCSE @ 65fe70a, xinghaow99/DenoSent @ 35d05f5, JohnGiorgi/DeCLUTR @ b78ac57.
"""

import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from selfsent.encoder.folder import AGAIN, CLOSED, ModelFolder, find_model, one_sentence, read_table, verify_files
from selfsent.errors import EncoderError, first_line
from selfsent.storage import atomic

if TYPE_CHECKING:
    from torch import Tensor

PICKLE, ALLENNLP = "pytorch_model.bin", ("weights.th", "best.th")
_VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_TOKENIZER = (*_VOCABULARIES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_COPIED = (".json", ".txt", ".model", ".safetensors")
_IN_ALLENNLP = "_text_field_embedder.token_embedder_tokens.transformer_model."
_FORMAT = 1  # of what is written into the cache; a change of it leaves older folders unread
_HEAD_WIDTH = 64  # of one attention head, in BERT and RoBERTa of every published size
_MEMBERS, _GROWTH, _SMALL = 1_000, 10, 1 << 24  # an archive may hold so many files, and grow so many times, and bytes


class Checkpoint(NamedTuple):
    """A released checkpoint, read."""

    config: dict[str, Any]  # of the transformer
    tensors: "dict[str, Tensor]"  # by the names that transformers has for them
    heads: "dict[str, Tensor]"  # what only training needs, by the authors' names
    pooling: str | None = None  # None: what the folder's own modules say, or the usual one
    template: str | None = None  # of pooling "prompt"
    max_length: int | None = None
    base: str | None = None  # whose tokenizer it has, where that is not in the folder


def read_encoder(name: str | Path | ModelFolder) -> ModelFolder:
    """Find and read the folder of an encoder, which every opening begins with; what was read is returned as it is.

    Raises:
        EncoderError: as ``find_encoder`` and ``ModelFolder.read``.
    """
    if isinstance(name, ModelFolder):
        return name
    with one_sentence(str(name)):
        path = find_encoder(name)
        return ModelFolder.read(path, str(name))


def find_encoder(name: str | Path) -> Path:
    """Return the folder of an encoder as ``find_model``; of a released checkpoint, the plain one in the cache.

    Raises:
        EncoderError: as both.
    """
    path = find_model(name)
    found = plain_folder(path)
    if found is None and path.is_file():
        raise EncoderError(f"{path} is a file: give the folder of the model, or a name on the hub")
    return found or path


def plain_folder(path: Path) -> Path | None:
    """Return the folder in the cache that stands for a released checkpoint, made at the first call; None: it is none.

    Args:
        path: a folder, or an archive of AllenNLP (``model.tar.gz``).

    Raises:
        EncoderError: a layout that is not known, a pickle that holds more than tensors, or an archive with links, with
            names outside of it, or of more than it may unpack to.
    """
    if path.is_file() and not tarfile.is_tarfile(path):
        return None
    if path.is_dir():
        if _kind(path) is None:
            return None
        verify_files(path)
    read = [path] if path.is_file() else sorted(_files(path))
    digests = [[file.relative_to(path).as_posix(), atomic.file_digest(file)] for file in read]
    target = atomic.cache_folder("released", atomic.bytes_digest(json.dumps([_FORMAT, *digests]).encode())[:32])
    if not target.is_dir():
        with _unpacked(path) as folder, atomic.build_folder(target) as scratch:
            _write(folder, path, scratch)
    return target


def training_heads(name: str | Path) -> "dict[str, Tensor]":
    """Return the tensors of a released checkpoint that only training needs, which an encoder leaves out.

    SimCSE's and WhitenedCSE's MLP, SCD's projector, DenoSent's projector and decoder, DeCLUTR's feed-forward layers.

    Raises:
        EncoderError: as ``plain_folder``, or not a released checkpoint.
    """
    with _unpacked(find_model(name)) as folder:
        kind = _kind(folder)
        if kind is None:
            raise EncoderError(f"{name} is no released checkpoint that is known: its weights are opened as they are")
        return _READERS[kind](folder, read_table(folder / "config.json")).heads


def _kind(folder: Path) -> str | None:
    if any((folder / name).is_file() for name in ALLENNLP):
        return "allennlp"
    if (folder / "config.json").is_file() and not (folder / "modules.json").exists():
        names = str(read_table(folder / "config.json").get("architectures"))
        for part, kind in {"DenoSent": "denosent", "ForCL": "contrastive"}.items():
            if part in names:
                return kind
    return "pickled" if any(_pickles(folder)) else None


def _files(folder: Path) -> Iterator[Path]:
    """Yield what a model consists of: settings, vocabularies and weights, its own and those of modules."""
    for pattern in ("[!.]*", "[0-9]*_*/[!.]*"):
        for file in folder.glob(pattern):
            if file.is_file() and (file.suffix in _COPIED or file.name in (PICKLE, *ALLENNLP)):
                yield file


def _pickles(folder: Path) -> Iterator[Path]:
    for file in _files(folder):
        if file.name == PICKLE and not any(file.parent.glob("model*.safetensors")):
            yield file


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Yield a folder as it is, and an archive as a folder of its own with the files that are read of it."""
    if path.is_dir():
        yield path
        return
    with TemporaryDirectory() as scratch:
        try:
            _unpack(path, Path(scratch))
        except (tarfile.TarError, OSError, EOFError) as error:
            raise EncoderError(f"the archive {path} is cut short or damaged ({first_line(error)}): {AGAIN}") from error
        yield Path(scratch)


def _unpack(path: Path, scratch: Path) -> None:
    room, found = _GROWTH * path.stat().st_size + _SMALL, 0
    with tarfile.open(path, "r:*") as archive:
        for number, member in enumerate(archive):  # headers are read one by one: nothing is unpacked beyond the room
            name, room = Path(member.name), room - member.size
            if name.is_absolute() or ".." in name.parts or not (member.isfile() or member.isdir()):
                what = f"holds {member.name[:80]!r}, a link or a name outside of it: it may hold files"
                raise EncoderError(f"the archive {path} {what}")
            if room < 0 or number >= _MEMBERS:
                what = f"would unpack to more than {_GROWTH} times its size or {_MEMBERS} files, which no weights do"
                raise EncoderError(f"the archive {path} {what}: it is not unpacked")
            if member.isfile() and len(name.parts) == 1 and name.name in ("config.json", *ALLENNLP, *_TOKENIZER):
                content = archive.extractfile(member)
                assert content is not None
                with content, (scratch / name.name).open("wb") as file:
                    shutil.copyfileobj(content, file)
                found += name.name in ALLENNLP
    if not found or not (scratch / "config.json").exists():
        raise EncoderError(f"the archive {path} is none of AllenNLP: expected config.json and weights.th in it")


def read_pickle(path: Path) -> "dict[str, Tensor]":
    """Read weights that torch has pickled, as tensors alone.

    Raises:
        EncoderError: the file holds anything else, is damaged, or its tensors are larger than the file.
    """
    import torch

    size = path.stat().st_size
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                if sum(entry.file_size for entry in packed.infolist()) > size:
                    raise EncoderError(f"{path} is compressed, which torch never writes: it is not unpacked")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except EncoderError:
        raise
    except Exception as error:  # torch has one for each way in which a pickle can be wrong
        raise EncoderError(
            f"{path} is a pickle that holds more than tensors, or is damaged, and is not read further "
            f"({first_line(error)[:120]}): give the weights as model.safetensors, as save_pretrained writes them"
        ) from error
    tensors = content if isinstance(content, dict) else {}
    if not tensors or not all(
        isinstance(k, str) and type(v) is torch.Tensor and not v.is_sparse for k, v in tensors.items()
    ):
        raise EncoderError(f"{path} holds a {type(content).__name__} and no table of tensors: give a state_dict")
    if sum(tensor.nelement() * tensor.element_size() for tensor in tensors.values()) > 2 * size:
        raise EncoderError(f"the tensors of {path} are larger than the file: {AGAIN}")
    seen, kept = set[Any](), dict[str, torch.Tensor]()
    for key, tensor in tensors.items():  # of tensors that are one in memory, such as a tied output layer, the first
        where = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if where not in seen and not key.endswith("position_ids"):
            key = re.sub(r"^(module\.|_orig_mod\.)+", "", key)  # what wrappers put before it
            key = key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
            kept[key] = tensor.detach().contiguous()
        seen.add(where)
    return kept


def _read_weights(folder: Path, name: str = PICKLE) -> "dict[str, Tensor]":
    if (folder / name).is_file():
        return read_pickle(folder / name)
    if not (folder / "model.safetensors").is_file():
        raise EncoderError(f"{folder} has neither model.safetensors nor {name}, its weights: {AGAIN}")
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _pickled(folder: Path, own: dict[str, Any]) -> Checkpoint:
    """Read a folder of transformers: SCD's, SimCSE's and DeCLUTR's after their own scripts, or anybody's."""
    tensors = _read_weights(folder)
    heads = {key: tensors.pop(key) for key in [*tensors] if re.match(r"(projector|bn|mlp)\.", key)}
    scd = any(key.startswith("projector.") for key in heads)
    return Checkpoint(own, tensors, heads, "cls" if scd else None)


def _contrastive(folder: Path, own: dict[str, Any]) -> Checkpoint:
    """Read what SimCSE, SCD and WhitenedCSE save while they train: ``bert.*`` beside the heads of training."""
    tensors, family = _read_weights(folder), str(own.get("model_type"))
    heads = {key: tensors.pop(key) for key in [*tensors] if not key.startswith(f"{family}.")}
    for key in [key for key in heads if key.startswith("lm_head.")]:
        tensors[f"cls.predictions.{key.removeprefix('lm_head.')}" if family == "bert" else key] = heads.pop(key)
    # SimCSE evaluates supervised encoders with its MLP, which is a pooler.  WhitenedCSE's whitens before it; SCD's is
    # not trained.
    if {key for key in heads if "num_batches" not in key} == {"mlp.dense.weight", "mlp.dense.bias"}:
        for part in ("weight", "bias"):
            tensors[f"{family}.pooler.dense.{part}"] = heads[f"mlp.dense.{part}"]
    return Checkpoint(own | {"architectures": None}, tensors, heads, "cls")


def _denosent(folder: Path, own: dict[str, Any]) -> Checkpoint:
    """Read DenoSent's: BERT is its ``encoder``, BERT's head its ``prediction_head``; its config does not say BERT's."""
    tensors, heads = dict[str, Any](), dict[str, Any]()
    for key, tensor in _read_weights(folder).items():
        part, _, rest = key.partition(".")
        renamed = {"encoder": f"bert.{rest}", "prediction_head": f"cls.{rest}"}.get(part)
        (heads if renamed is None else tensors)[renamed or key] = tensor
    poolings = {"mask": "prompt", "cls": "cls", "mean": "mean"}
    pooling = poolings.get(own.get("pooler", "mask"))
    if pooling is None:
        raise EncoderError(f"{folder} pools by {own['pooler']!r}, which DenoSent does not know: give mask, cls or mean")
    template = own.get("prompt_format", "[X] means [MASK]") if pooling == "prompt" else None
    base = own.get("encoder_name_or_path")
    return Checkpoint(_config(tensors, base), tensors, heads, pooling, template, own.get("max_length", 32), base)


def _allennlp(folder: Path, own: dict[str, Any]) -> Checkpoint:
    """Read DeCLUTR's: the transformer is deep inside the names, and the settings name its tokenizer."""
    tensors, heads = dict[str, Any](), dict[str, Any]()
    name = next(name for name in ALLENNLP if (folder / name).is_file())
    for key, tensor in _read_weights(folder, name).items():
        inner = key.removeprefix(_IN_ALLENNLP)
        (heads if inner == key else tensors)[inner] = tensor
    try:
        embedder = own["model"]["text_field_embedder"]["token_embedders"]["tokens"]
        pool, tokenizer = own["model"].get("seq2vec_encoder") or {}, own["dataset_reader"].get("tokenizer") or {}
        base, kind = str(embedder["model_name"]), pool.get("type", "bag_of_embeddings")
        whole = embedder.get("last_layer_only", True) and not embedder.get("max_length")
    except (KeyError, TypeError, AttributeError) as error:
        raise EncoderError(f"config.json of {folder} is none of DeCLUTR: it names no pretrained transformer") from error
    mean = kind == "bag_of_embeddings" and pool.get("averaged", not pool)
    if not (whole and tensors and (mean or (kind == "cls_pooler" and not pool.get("cls_is_last_token")))):
        known = "known are the mean (bag_of_embeddings, averaged) and the first token (cls_pooler) of the last layer"
        raise EncoderError(f"config.json of {folder} pools otherwise than DeCLUTR does ({str(kind)[:40]}): {known}")
    pooling, length = "mean" if mean else "cls", tokenizer.get("max_length")
    return Checkpoint(_config(tensors, base), tensors, heads, pooling, None, length, base)


_READERS = {"pickled": _pickled, "contrastive": _contrastive, "denosent": _denosent, "allennlp": _allennlp}


def _config(tensors: "Mapping[str, Tensor]", base: str | None) -> dict[str, Any]:
    """Return the settings of a base by its name, where the hub's cache has it, else those that its weights have."""
    if (known := _in_cache(base)) and (known / "config.json").is_file():
        return read_table(known / "config.json")
    inner = {re.sub(r"^(bert|roberta)\.", "", key): tensor for key, tensor in tensors.items()}
    layers = {int(key.split(".")[2]) for key in inner if re.match(r"encoder\.layer\.\d+\.", key)}
    kinds = ("word", "position", "token_type")
    try:
        sizes = {kind: inner[f"embeddings.{kind}_embeddings.weight"].shape for kind in kinds}
        wide = inner["encoder.layer.0.intermediate.dense.weight"].shape[0]
    except (KeyError, IndexError) as error:
        raise EncoderError(_absent(f"the weights are not BERT's, and the settings of {base!r}", base)) from error
    roberta = sizes["token_type"][0] == 1  # BERT has two segments
    return {
        "model_type": "roberta" if roberta else "bert",
        "vocab_size": sizes["word"][0],
        "hidden_size": sizes["word"][1],
        "num_hidden_layers": len(layers),
        "num_attention_heads": max(1, sizes["word"][1] // _HEAD_WIDTH),
        "intermediate_size": wide,
        "max_position_embeddings": sizes["position"][0],
        "type_vocab_size": sizes["token_type"][0],
        "layer_norm_eps": 1e-5 if roberta else 1e-12,
        "pad_token_id": 1 if roberta else 0,
    }


def _in_cache(base: str | None) -> Path | None:
    """Return the folder of a name on the hub where this machine has it; nothing is fetched that a file names."""
    from huggingface_hub import snapshot_download

    if not base or not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", base):
        return None
    try:
        return Path(snapshot_download(base, allow_patterns=["*.json", "*.txt"], local_files_only=True))
    except Exception:  # of each layer its own: it is not there
        return None


def _absent(what: str, base: str | None) -> str:
    return f"{what} are not on this machine: get them with `hf download {base} --include '*.json' '*.txt'`"


def _write(folder: Path, path: Path, scratch: Path) -> None:
    """Write a checkpoint as a plain folder, its head that guesses words included, from which training can go on."""
    kind = _kind(folder) or "pickled"
    listed = kind == "pickled" and (folder / "modules.json").exists()
    checkpoint = None if listed else _READERS[kind](folder, read_table(folder / "config.json"))
    if checkpoint is None or checkpoint.pooling is None:
        _write_anew(folder, scratch)
        return
    _write_transformer(checkpoint, scratch)
    _copy_tokenizer([folder, path.parent] if path.is_file() else [folder], checkpoint.base, scratch)
    from selfsent.encoder.assemble import assemble, quietly
    from selfsent.encoder.checks import limit_length, require_transformer
    from selfsent.encoder.save import save_encoder

    with TemporaryDirectory() as plain, quietly():  # modules around the transformer are written as for any encoder
        base = ModelFolder.read(shutil.copytree(scratch, Path(plain) / "base"), str(path))
        config = require_transformer(base.modules[0])
        limit_length(encoder := assemble(base, config, checkpoint.pooling, checkpoint.template), checkpoint.max_length)
        save_encoder(encoder.eval(), Path(plain) / "whole", as_is=True)
        shutil.copytree(Path(plain) / "whole", scratch, dirs_exist_ok=True)
    _write_transformer(checkpoint, scratch)  # whole again: modules alone have neither pooler nor head


def _write_weights(tensors: "Mapping[str, Tensor]", folder: Path) -> None:
    from safetensors.torch import save_file

    apart = {key: tensor.clone() for key, tensor in tensors.items()}  # of those that share their memory, too
    save_file(apart, folder / "model.safetensors", metadata={"format": "pt"})


def _write_transformer(checkpoint: Checkpoint, scratch: Path) -> None:
    _write_weights(checkpoint.tensors, scratch)
    config = {key: value for key, value in checkpoint.config.items() if key != "auto_map"}
    (scratch / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")


def _write_anew(folder: Path, scratch: Path) -> None:
    """Copy a folder with every pickle in it as safetensors."""
    pickles = set(_pickles(folder))
    for file in _files(folder):
        place = scratch / file.relative_to(folder)
        place.parent.mkdir(exist_ok=True)
        if file in pickles:
            _write_weights(read_pickle(file), place.parent)
        elif file.suffix in _COPIED:
            shutil.copyfile(file, place)


def _copy_tokenizer(places: list[Path], base: str | None, scratch: Path) -> None:
    """Copy the tokenizer from beside the weights, or of the base that they name, and write it as tokenizer.json."""
    known = _in_cache(base)
    for place in (*places, *([known] if known else [])):
        names = [name for name in _TOKENIZER if (place / name).is_file()]
        if {*names} & {*_VOCABULARIES}:
            for name in names:
                shutil.copyfile(place / name, scratch / name)
            break
    else:
        raise EncoderError(_absent(f"{places[0]} holds no tokenizer, and the files of {base!r}", base))
    if not (scratch / "tokenizer.json").exists():
        from transformers import AutoTokenizer

        AutoTokenizer.from_pretrained(scratch, **CLOSED).save_pretrained(scratch)
