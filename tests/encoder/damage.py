"""Ways to damage a model folder, listed from the folder itself."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], None]  # of a copy of the folder

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


def damages(folder: Path) -> Iterator[tuple[str, Change]]:
    """Yield a name and a function for every damage: of each file, each key and each tensor."""
    for path in sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file()):
        size = (folder / path).stat().st_size
        yield f"{path}: deleted", partial(_delete, path)
        yield f"{path}: a folder", partial(_folder, path)
        for length in (0, 8, size // 2, size - 2):
            yield f"{path}: cut to {length} bytes", partial(_cut, path, length)
        for place in sorted({0, 1, 7, 8, 9, 20, size // 2, size - 1}):
            yield f"{path}: bit flipped at {place}", partial(_flip, path, place)
        if path.suffix == ".json":
            yield f"{path}: nested too deep", partial(_write, path, b"[" * 200_000)
            yield f"{path}: of numbers too long", partial(_write, path, b'{"vocab_size": ' + b"9" * 5000 + b"}")
            for text in (b"[]", b"{}", b"null", b"7", b'"x"', b"\xff\xfe"):
                yield f"{path}: {text!r}", partial(_write, path, text)
            yield from _keys(path, json.loads((folder / path).read_text(encoding="utf-8")))
        if path.suffix == ".safetensors":
            for name, tensor in load_file(folder / path).items():
                yield f"{path}: without {name}", partial(_tensor, path, name, None)
                yield f"{path}: {name} renamed", partial(_tensor, path, name, {f"{name}.other": tensor})
                yield f"{path}: {name} of another shape", partial(_tensor, path, name, {name: tensor.flatten()[:-1]})
                yield f"{path}: {name} of bytes", partial(_tensor, path, name, {name: tensor.to(torch.uint8)})


def _keys(path: Path, content: Any) -> Iterator[tuple[str, Change]]:
    leaves = list(_places(content))[:_LEAVES]
    for place in leaves:
        said = "/".join(map(str, place))
        yield f"{path}: without {said}", partial(_key, path, place, None)
        for other in _OTHER[type(_at(content, place))]:
            yield f"{path}: {said} = {str(other)[:20]!r}", partial(_key, path, place, [other])


def _places(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(pairs)[:_LEAVES]:
        yield (*above, key)
        yield from _places(value, (*above, key))


def _at(content: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        content = content[key]
    return content


def _key(path: Path, place: tuple[Any, ...], value: list[Any] | None, folder: Path) -> None:
    content = json.loads((folder / path).read_text(encoding="utf-8"))
    holder = _at(content, place[:-1])
    if value is None:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value[0]
    (folder / path).write_text(json.dumps(content), encoding="utf-8")


def _tensor(path: Path, name: str, others: dict[str, torch.Tensor] | None, folder: Path) -> None:
    tensors = load_file(folder / path)
    del tensors[name]
    save_file(tensors | {key: value.clone() for key, value in (others or {}).items()}, folder / path, {"format": "pt"})


def _delete(path: Path, folder: Path) -> None:
    (folder / path).unlink()


def _folder(path: Path, folder: Path) -> None:
    (folder / path).unlink()
    (folder / path).mkdir()


def _cut(path: Path, length: int, folder: Path) -> None:
    _write(path, (folder / path).read_bytes()[:length], folder)


def _flip(path: Path, place: int, folder: Path) -> None:
    content = bytearray((folder / path).read_bytes())
    content[place] ^= 4
    _write(path, bytes(content), folder)


def _write(path: Path, content: bytes, folder: Path) -> None:
    (folder / path).write_bytes(content)


def damaged(folder: Path, change: Change, place: Path) -> Path:
    """Copy a folder and damage the copy."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place)
    change(place)
    return place
