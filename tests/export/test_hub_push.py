"""A model is pushed whole or not at all, and every answer of the hub becomes one sentence."""

import shutil

import pytest
from commands import run as command
from fake_hub import reached
from huggingface_hub import ModelCard, constants
from huggingface_hub.utils import _http
from small_runs import Told
from tiny import TEXTS, make_base

from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError, UserError
from selfsent.export.push import push_model
from selfsent.storage import atomic

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the hub's library
CARD = "---\nlanguage: en\ntags:\n- selfsent\n---\n\n# A card\n\nWritten by somebody.\n"


@pytest.fixture
def hub(monkeypatch):
    with reached(monkeypatch) as made:
        yield made


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a model, its card and its scores."""
    where = tmp_path_factory.mktemp("run")
    folder = where / "tickets"
    save_encoder(load_encoder(make_base(where / "base"), pooling="mean"), folder / "model")
    (folder / "model" / "README.md").write_text(CARD)
    atomic.write_sealed(folder / "config.json", {"recipe": {"method": "simcse", "texts": ["t.jsonl"]}})
    (folder / "scores.json").write_text('{"verdict": "Better."}')
    (folder / "model" / ".selfsent").write_text("process 1")
    return folder


def test_every_file_arrives_and_opens_as_the_same_encoder(hub, run, tmp_path):
    hub.large = (".safetensors",)  # through large-file storage, the others in the commit
    address = push_model(run, "me/tickets")
    assert address.endswith("/me/tickets")
    stored = hub.repositories["me/tickets"]
    assert stored["private"] is True
    local = {path.relative_to(run / "model").as_posix() for path in (run / "model").rglob("*") if path.is_file()}
    assert set(stored["files"]) == (local - {".selfsent"}) | {"scores.json"}
    for name, content in stored["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    stored["files"] |= dict.fromkeys(["4_Dense/config.json", "behind.safetensors", "LICENSE", "figure.png"], b"")
    push_model(run, "me/tickets")
    assert set(stored["files"]) == (local - {".selfsent"}) | {"scores.json", "LICENSE", "figure.png"}
    theirs, ours = (load_encoder(folder).encode(TEXTS) for folder in (tmp_path, run / "model"))
    assert (theirs == ours).all()


def test_the_card_gets_licence_and_language_as_told_and_keeps_its_words(hub, run):
    push_model(run, "me/tickets", licence="cc-by-sa-4.0", language="de")
    card = ModelCard(hub.repositories["me/tickets"]["files"]["README.md"].decode())
    assert (card.data.license, card.data.language) == ("cc-by-sa-4.0", "de")
    assert card.data.tags == ["selfsent"]
    assert "Written by somebody." in card.text
    assert (run / "model" / "README.md").read_text() == CARD


@pytest.mark.parametrize("where", ["/api/repos/create", "/commit/main", "/preupload/", "/objects/batch"])
@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, (), "does not accept the token: log in"),
        (403, (), "may not write to me/tickets"),
        (429, (("Retry-After", "7"),), "limits requests: repeat the command after 7 seconds"),
        (500, (), r"the hub failed \(500\): repeat the command"),
    ],
)
def test_an_answer_of_the_hub_becomes_one_sentence_and_nothing_is_committed(hub, run, where, status, headers, said):
    hub.large = (".safetensors",)
    hub.failures[where] = (status, headers, "so it says")
    with pytest.raises(UserError, match=said) as caught:
        push_model(run, "me/tickets")
    assert "\n" not in str(caught.value)
    assert "nothing was committed" in str(caught.value)
    assert not hub.repositories.get("me/tickets", {"files": {}})["files"]


def test_a_wrong_token_and_none_at_all_are_told_apart(hub, run, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(UserError, match="does not accept the token"):
        push_model(run, "me/tickets")
    monkeypatch.setenv("HF_TOKEN", "hf_é")
    with pytest.raises(UserError, match="the token for the hub holds characters that no token has"):
        push_model(run, "me/tickets")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(run / "no token"))
    with pytest.raises(UserError, match="token"):
        push_model(run, "me/tickets")


def test_a_hub_that_nobody_serves_is_one_sentence(run, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(_http.time, "sleep", lambda _: None)
    monkeypatch.setenv("HF_TOKEN", "x")
    with pytest.raises(UserError, match="cannot be reached"):
        push_model(run, "me/tickets")


def test_nothing_but_the_files_of_a_model_is_sent_and_all_are_named_first(hub, run, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(run / "model", folder)
    own = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {".selfsent"}
    (folder / "1_Pooling").mkdir(exist_ok=True)
    for name in (
        ".env",
        "notes.txt",
        "credentials.json",
        "id_rsa",
        "1_Pooling/.netrc",
        ".git/config",
        "data/vocab.txt",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("secret")
    (folder / "passwd").symlink_to("/etc/passwd")
    (folder / "2_Dense").symlink_to(tmp_path)
    told = Told()
    push_model(folder, "me/tickets", progress=told)
    assert {*hub.repositories["me/tickets"]["files"]} == own
    first, left, *rest = told.said
    assert rest == []
    assert {*first.split(": ")[1].split(", ")} == own
    assert first.startswith("to me/tickets (private), ")
    assert all(name in left for name in (".env", ".git", "1_Pooling/.netrc", "passwd", "2_Dense", "credentials.json"))


@pytest.mark.parametrize("name", ["README.md", "model.safetensors", "vocab.txt", "onnx/model.onnx"])
def test_a_file_of_a_model_that_is_a_link_is_refused(hub, run, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(run / "model", folder)
    (folder / ".checksums").unlink()
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("/etc/hostname")
    with pytest.raises(EncoderError, match=f"{name} is no plain file, and links are not followed"):
        push_model(folder, "me/tickets")
    assert hub.requests == []


def test_a_repository_is_private_and_a_public_one_gets_nothing_unless_that_is_asked_for(hub, run):
    hub.repositories["me/tickets"] = {"private": False, "files": {}}
    with pytest.raises(UserError, match="me/tickets is public: add --public, or name another; nothing was committed"):
        push_model(run, "me/tickets")
    assert hub.repositories["me/tickets"]["files"] == {}
    push_model(run, "me/tickets", public=True)
    assert hub.repositories["me/tickets"]["files"]
    push_model(run, "me/other", public=True)
    assert hub.repositories["me/other"]["private"] is False


@pytest.mark.parametrize("name", ["tickets", "a/b/c", "me/../x", "me/"])
def test_a_name_that_is_none_is_refused_before_anything_is_sent(hub, run, name):
    with pytest.raises(UserError, match="owner/name"):
        push_model(run, name)
    assert hub.requests == []


def test_a_folder_without_a_model_or_with_changed_files_is_refused(hub, run, tmp_path):
    with pytest.raises(EncoderError, match="holds no model"):
        push_model(tmp_path, "me/tickets")
    config = run / "model" / "config.json"
    before = config.read_text()
    try:
        config.write_text(before + " ")
        with pytest.raises(EncoderError, match="changed since it was written"):
            push_model(run, "me/tickets")
    finally:
        config.write_text(before)
    assert hub.requests == []


def test_the_command_says_where_it_went(hub, run, monkeypatch, capsys):
    status, out, err = command(monkeypatch, capsys, "push", run, "me/tickets", "--license", "mit")
    assert status == 0
    assert "/me/tickets" in out + err
    assert ModelCard(hub.repositories["me/tickets"]["files"]["README.md"].decode()).data.license == "mit"
