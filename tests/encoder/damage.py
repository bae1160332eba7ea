"""Folders of models to change: what other programs write, and every way to damage one, listed from the folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tiny import make_tokenizer
from torch import nn

from selfsent.encoder.save import save_encoder

Damage = tuple[str, Path, bytes | None]  # a name, a file, and what it then holds; None: it is gone

FOLDER = b"a folder"  # in the place of the file
_OTHER = {  # values of other types, and numbers that no file can mean
    bool: ["no", 3, None],
    int: ["7", -1, 10**12, 10**30, 0.5, [1], None],
    float: ["0.1", -1.0, 1e308, [1], None],
    str: [7, "", "os.system", "../..", ["x"], None],
    list: [{}, "x", 5, [], None],
    dict: [[], "x", 5, {}, None],
    type(None): ["x", 5, {}],
}
_LEAVES = 40  # of a JSON file that are changed: the first ones, which leaves the vocabulary's own out


def static_vectors(table: np.ndarray | torch.Tensor | None = None, *behind: nn.Module, **settings: Any):
    """Static vectors of the tiny words, by default normal ones, 12 wide and far from length 1."""
    tokenizer = make_tokenizer()
    if table is None:
        table = np.random.default_rng(0).normal(size=(len(tokenizer), 12)).astype(np.float32) * 7
    embedding = StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=table)
    return SentenceTransformer(modules=[embedding, *behind], device="cpu", **settings)


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a file in place."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})


def change_json(path: Path, **changes: Any) -> None:
    """Set some keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def unsealed(encoder: SentenceTransformer, folder: Path, **options: Any) -> Path:
    """Save as another program would, without checksums."""
    save_encoder(encoder, folder, **options)
    for sums in folder.rglob(".checksums"):
        sums.unlink()
    return folder


def damages(folder: Path) -> Iterator[Damage]:
    """Yield every damage: of each file, each key and each tensor."""
    for path in sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file()):
        content = (folder / path).read_bytes()
        size = len(content)
        yield f"{path}: deleted", path, None
        yield f"{path}: a folder", path, FOLDER
        for length in (0, 8, size // 2, size - 2):
            yield f"{path}: cut to {length} bytes", path, content[:length]
        for i in sorted({0, 1, 7, 8, 9, 20, size // 2, size - 1}):
            yield f"{path}: bit flipped at {i}", path, content[:i] + bytes([content[i] ^ 4]) + content[i + 1 :]
        if path.suffix == ".json":
            yield f"{path}: nested too deep", path, b"[" * 200_000
            yield f"{path}: of numbers too long", path, b'{"vocab_size": ' + b"9" * 5000 + b"}"
            for text in (b"[]", b"{}", b"null", b"7", b'"x"', b"\xff\xfe"):
                yield f"{path}: {text!r}", path, text
            for name, changed in _keys(json.loads(content)):
                yield f"{path}: {name}", path, json.dumps(changed).encode()
        if path.suffix == ".safetensors":
            tensors = load_file(folder / path)
            for name, tensor in tensors.items():
                rest = {other: value for other, value in tensors.items() if other != name}
                for change, others in {
                    f"without {name}": {},
                    f"{name} renamed": {f"{name}.other": tensor},
                    f"{name} of another shape": {name: tensor.flatten()[:-1].clone()},
                    f"{name} of bytes": {name: tensor.to(torch.uint8)},
                }.items():
                    yield f"{path}: {change}", path, safetensors.torch.save(rest | others, {"format": "pt"})


def _keys(content: Any) -> Iterator[tuple[str, Any]]:
    for keys in list(_leaves(content))[:_LEAVES]:
        name = "/".join(map(str, keys))
        changed, holder, old = _holder(content, keys)
        del holder[keys[-1]]
        yield f"without {name}", changed
        for other in _OTHER[type(old)]:
            changed, holder, _ = _holder(content, keys)
            holder[keys[-1]] = other
            yield f"{name} = {str(other)[:20]!r}", changed


def _holder(content: Any, keys: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """A copy of the content, what in it holds the last key, and the value there."""
    holder = copied = json.loads(json.dumps(content))
    for key in keys[:-1]:
        holder = holder[key]
    return copied, holder, holder[keys[-1]]


def _leaves(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(pairs)[:_LEAVES]:
        yield (*above, key)
        yield from _leaves(value, (*above, key))


def damaged(folder: Path, damage: Damage, copied: Path) -> Path:
    """Copy a folder and damage the copy."""
    shutil.rmtree(copied, ignore_errors=True)
    shutil.copytree(folder, copied)
    _, path, content = damage
    (copied / path).unlink()
    if content == FOLDER:
        (copied / path).mkdir()
    elif content is not None:
        (copied / path).write_bytes(content)
    return copied
