"""Push a model folder to the hub, whole or not at all: one commit, its card completed by what the user tells.

Only files with names that a model's have are sent.  Whatever else lies in the folder stays there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from selfsent.encoder.folder import read_table, verify_files
from selfsent.errors import ConfigurationError, EncoderError, UserError, first_line
from selfsent.evaluation.label_free.material import find_trained
from selfsent.progress import SILENT, Progress
from selfsent.runs.card import CARD, front_matter
from selfsent.storage import atomic

# The files of a model as sentence-transformers, transformers and selfsent write them.
_FILES = """
    modules.json config.json config_sentence_transformers.json sentence_*_config.json generation_config.json
    preprocessor_config.json tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json unigram.json
    vocab.json vocab.txt merges.txt sentencepiece.bpe.model spiece.model spm.model tokenizer.model
    model.safetensors model-*-of-*.safetensors model.safetensors.index.json model.onnx model_*.onnx model*.onnx_data
    pair.json behind.safetensors search.json export.json scores.json README.md LICENSE LICENSE.txt LICENSE.md NOTICE
    .checksums
"""
_FOLDERS = re.compile(r"\d+(_\w+)?|onnx")  # 1_Pooling, and the encoders of a pair
_SHOWN = 10  # names of what is left out
_LOGIN = "log in with hf auth login, or set HF_TOKEN"
_AGAIN = "nothing was committed, so that the repository is as before"


def push_model(
    model: str | Path,
    repository: str,
    *,
    public: bool = False,
    licence: str | None = None,
    language: str | None = None,
    progress: Progress = SILENT,
) -> str:
    """Upload the folder of a model in one commit; return the address of the repository.

    Sent are the files that a model has by their names, and nothing else; those that only an earlier model had are
    removed; ``progress`` is told which.  The token is the one that ``hf auth login`` keeps, or ``HF_TOKEN``.  A
    repository that does not exist is made.

    Args:
        model: the folder of a model, of a run or of an export.
        repository: "owner/name".
        public: the repository is one that everybody sees; otherwise it is made private, and a public one is refused.
        licence: of the weights, an identifier of the hub such as "apache-2.0", for the card.
        language: of the text, such as "en", for the card.

    Raises:
        UserError: no such folder, or files that changed or are links; a name, visibility, token or permission that
            does not fit; a hub that limits requests or fails.

    Examples:
        >>> print(selfsent.push_model("runs/tickets", "owner/tickets", language="en"))
    """
    folder = Path(find_trained(model))
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise EncoderError(f"{folder} holds no model: give the folder of a model, of a run or of an export")
    verify_files(folder)
    try:
        if repository.count("/") != 1:
            raise HFValidationError("it is not of the form owner/name")
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ConfigurationError(
            f"repository {repository!r} does not fit ({first_line(error)}): give owner/name"
        ) from error
    files, left = _files_of(folder)
    scores = folder.parent / "scores.json"
    if folder.name == "model" and scores.is_file() and not scores.is_symlink():
        files["scores.json"] = scores  # every figure of the card is one of it
    _show(files, left, f"{repository} ({'public' if public else 'private'})", progress)
    card = _completed(folder, repository, licence, language).encode()
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(name, card if name == CARD else path) for name, path in {**files, CARD: folder}.items()
    ]
    api = HfApi()
    progress.report("push", 0, len(operations))
    with _one_sentence(repository):
        address = api.create_repo(repository, private=not public, exist_ok=True)
        there = api.model_info(repository)
        if not public and not there.private:  # one that was there
            raise ConfigurationError(f"repository {repository} is public: add --public, or name another; {_AGAIN}")
        # What an earlier model had and this one has not, such as a fourth module, would be read as its own.
        old = [each.rfilename for each in there.siblings or () if each.rfilename not in files]
        old = [name for name in old if _is_of_a_model(name)]
        if old:
            progress.say(f"removed there, as files of an earlier model: {', '.join(sorted(old))}")
        operations += map(CommitOperationDelete, old)
        api.create_commit(repository, operations, commit_message="Upload a sentence encoder by selfsent")
    progress.report("push", len(operations), len(operations))
    return str(address)


def _files_of(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the files of a model by their names in the repository, and the names of what else lies in its folder.

    Raises:
        EncoderError: a file of the model is a link, a pipe or a device, or is not known by its name.
    """
    files: dict[str, Path] = {}
    left: list[str] = []
    folders = [folder]
    for place in folders:
        for path in sorted(place.iterdir()):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() and not path.is_symlink() and _FOLDERS.fullmatch(path.name):
                folders.append(path)
            elif any(fnmatchcase(path.name, pattern) for pattern in _FILES.split()):
                if path.is_symlink() or not path.is_file():
                    raise EncoderError(f"{path} is no plain file, and links are not followed: copy the file there")
                files[name] = path
            elif not atomic.is_unfinished(path):
                left.append(name)
    written = read_table(folder / atomic.CHECKSUMS) if (folder / atomic.CHECKSUMS).exists() else {}
    for name in written.keys() - files.keys():
        raise EncoderError(f"{folder / name} has no name of a file of a model, and is not pushed: save the model anew")
    return files, left


def _is_of_a_model(name: str) -> bool:
    """Tell whether a file of a repository is one that a model has; what people write beside it is none."""
    path = PurePosixPath(name)
    known = any(fnmatchcase(path.name, pattern) for pattern in _FILES.split())
    folders = all(_FOLDERS.fullmatch(part) for part in path.parts[:-1])
    return known and folders and not name.startswith(("README", "LICENSE", "NOTICE"))


def _show(files: Mapping[str, Path], left: Sequence[str], where: str, progress: Progress) -> None:
    """Say what is sent, and what lies beside it."""
    size = sum(path.stat().st_size for path in files.values()) / 1e6
    progress.say(f"to {where}, {len(files)} files, {size:,.1f} MB: {', '.join(sorted(files))}")
    if left:
        more = f" and {len(left) - _SHOWN:,} more" if len(left) > _SHOWN else ""
        progress.say(f"not sent, as no files of a model: {', '.join(left[:_SHOWN])}{more}")


def _completed(folder: Path, repository: str, licence: str | None, language: str | None) -> str:
    """Return the card of a folder with licence and language as told; a plain one where it has none."""
    path = folder / CARD
    try:
        if not path.is_file():
            return front_matter(repository, [], licence=licence, language=language) + f"\n# {repository}\n"
        text = path.read_text(encoding="utf-8")
        if not text.startswith("---\n"):  # of a person, without anything for the hub
            return front_matter(repository, [], licence=licence, language=language) + "\n" + text
        card = ModelCard(text)
        if licence is not None:
            card.data["license"] = licence
        if language is not None:
            card.data["language"] = language
        return str(card)
    except Exception as error:  # YAML that its people wrote, in the words of its parser
        raise EncoderError(f"the head of {path} is no YAML for the hub ({first_line(error)}): mend it") from error


@contextmanager
def _one_sentence(repository: str) -> Iterator[None]:
    """Turn what the hub answers, or its client raises, into one sentence that says what to do."""
    try:
        yield
    except UserError:
        raise
    except LocalTokenNotFoundError as error:
        raise ConfigurationError(f"there is no token for the hub: {_LOGIN}") from error
    except UnicodeEncodeError as error:  # of a header, which is ASCII
        raise ConfigurationError(f"the token for the hub holds characters that no token has: {_LOGIN}") from error
    except OfflineModeIsEnabled as error:
        raise ConfigurationError("HF_HUB_OFFLINE is set: unset it to push") from error
    except Exception as error:  # the library wraps what its HTTP client raises, which has classes of its own
        answer: BaseException | None = error
        while answer is not None and not isinstance(answer, HfHubHTTPError):
            answer = answer.__cause__
        if answer is not None:
            raise UserError(f"{_advice(answer, repository)}; {_AGAIN}") from error
        if isinstance(error, ValueError):  # of its validator
            raise EncoderError(f"the hub does not accept the card: {first_line(error)}; {_AGAIN}") from error
        raise UserError(f"the hub cannot be reached ({first_line(error)}); {_AGAIN}") from error


def _advice(error: HfHubHTTPError, repository: str) -> str:
    """Say what an HTTP status means for the user, and quote what the hub says."""
    status, wait = error.response.status_code, error.response.headers.get("Retry-After")
    after = f" after {wait} seconds" if wait else " in some minutes"
    known = {
        401: f"the hub does not accept the token: {_LOGIN}",
        403: f"the token may not write to {repository}: give one with the right to write, or a repository of yours",
        404: f"the hub has no place for {repository}: is {repository.partition('/')[0]!r} you or your organisation?",
        413: "the hub takes no files of this size",
        429: f"the hub limits requests: repeat the command{after}",
    }
    failed = f"the hub failed ({status}): repeat the command{after}" if status >= 500 else f"the hub refused ({status})"
    said = (error.server_message or "").strip().splitlines()
    return known.get(status, failed) + (f" ({said[0]})" if said else "")
