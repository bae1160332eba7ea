"""Files that fsspec opens by a URL (object stores, HDFS, HTTP, memory), and data sets on the Hugging Face hub."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

import xxhash

from selfsent.errors import CorpusError, UserError, first_line
from selfsent.runtime.imports import import_datasets

HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:/([\w.-]+))?(?::([\w.+%\[\]:-]+))?")  # data set, config, split
_URL = re.compile(r"[A-Za-z][\w+.-]+(::[\w+.-]+)*://")  # a drive of Windows has one letter


def is_url(name: object) -> bool:
    """Tell whether a name is one for fsspec, such as s3://bucket/folder."""
    return isinstance(name, str) and bool(_URL.match(name))


@dataclass(frozen=True)
class RemoteFile:
    """One file; it is read while it is open, and never copied to this machine as a whole."""

    url: str
    size: int  # in bytes; 0 where the server does not say
    version: str  # changes when the file does, as far as its file system knows

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> PurePosixPath:
        """Return the last part of the URL, whose suffixes say format and compression."""
        return PurePosixPath(re.split(r"[?#]", self.url)[0].rpartition("/")[2])

    def identity(self) -> list[object]:
        """Return what changes when the content does: what the file system knows, or else a checksum."""
        if self.version:
            return [self.url, self.size, self.version]
        digest = xxhash.xxh3_128()
        with self.open() as file:
            while block := file.read(1 << 20):
                digest.update(block)
        return [self.url, self.size, digest.hexdigest()]

    def open(self) -> io.BufferedReader:
        """Open the file for reading."""
        import fsspec

        with reported(self.url):  # in a reader, because those of fsspec read no part of a line
            return io.BufferedReader(fsspec.open(self.url, "rb").open(), 1 << 20)


def remote_files(url: str) -> list[RemoteFile]:
    """Return one file, or all in a folder and below, in the order of their names, without what is hidden.

    A name that begins with a dot or, as is the custom of Hadoop, with an underscore is hidden.

    Raises:
        CorpusError: there is no such file or file system, or it cannot be reached.
    """
    with reported(url):
        system, path = open_system(url)
        if not system.isdir(path):
            return [_remote_file(url, system.info(path))]
        entries = system.find(path, detail=True)
        shown = [name for name in sorted(entries) if not re.search(r"/[._]", name.removeprefix(path))]
        return [_remote_file(system.unstrip_protocol(name), entries[name]) for name in shown]


def open_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    import fsspec

    return cast("tuple[Any, str]", fsspec.core.url_to_fs(url))


@contextmanager
def reported(url: str) -> Iterator[None]:
    """Turn what a file system raises into one sentence."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise CorpusError(f"{url} does not exist: name a file or a folder that is there") from error
    except Exception as error:  # each file system has its own
        reason = first_line(error).rstrip(".") or type(error).__name__
        raise CorpusError(f"{url} cannot be used ({reason}): check the name and the access to it") from error


def _remote_file(url: str, facts: dict[str, Any]) -> RemoteFile:
    keys = ("ETag", "etag", "md5", "sha256", "mtime", "LastModified", "last_modified", "created")
    version = next((f"{key} {facts[key]}" for key in keys if facts.get(key)), "")
    return RemoteFile(url, int(facts.get("size") or 0), version)


def hub_rows(name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a data set on the hub, as they come."""
    datasets = import_datasets(f"the hub dataset {name}")
    dataset, config, split = HUB_NAME.findall(name)[0]
    try:
        yield from datasets.load_dataset(dataset, config or None, split=split or "train", streaming=True)
    except Exception as error:  # not found, no such split or config, no connection: each layer has its own
        reason = first_line(error).rstrip(".")
        raise CorpusError(
            f"the hub dataset {name} cannot be read ({reason}): write it as owner/name, owner/name/config or "
            "owner/name:split"
        ) from error


def hub_revision(name: str) -> str:
    """Return the revision of a data set on the hub."""
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(HUB_NAME.findall(name)[0][0]).sha)
    except Exception as error:  # not found or no connection, in the words of its HTTP client
        raise CorpusError(f"{name} is neither a file here nor a dataset that the hub knows") from error
