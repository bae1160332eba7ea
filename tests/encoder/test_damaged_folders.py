"""A damaged model folder gives the same vectors as before, or one sentence: never others, and never a traceback."""

import os
import shutil
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from damage import damaged, damages, static_vectors
from hypothesis import strategies
from tiny import PROMPT, TEXTS

from selfsent.encoder.encode import encode
from selfsent.encoder.load import load_encoder
from selfsent.encoder.pair_module import join_encoders
from selfsent.encoder.save import save_encoder
from selfsent.errors import EncoderError, UserError

# Written by another program there are no checksums, and these make another model that is just as valid.
VALID = (
    "bit flipped",  # inside a tensor, or in the letters of a name
    "layer_norm_eps = '1e+308'",
    "max_seq_length",
    "model_max_length",
    "prompts",
    "tokenizer.json: ",  # other tokens, other rules
    "tokenizer_config.json: ",
)


@pytest.fixture(scope="module")
def folders(bert, tmp_path_factory):
    """One folder of every layout: transformers' own, and those that this package writes."""
    root = tmp_path_factory.mktemp("folders")
    shutil.copytree(bert, root / "plain")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = torch.nn.Linear(32, 16)
    save_encoder(load_encoder(bert, pooling="cls"), root / "head", head=head)
    save_encoder(load_encoder(bert, pooling="prompt", template=PROMPT), root / "prompt")
    save_encoder(load_encoder(bert, pooling="first_last"), root / "layers")
    save_encoder(static_vectors(), root / "static")
    save_encoder(join_encoders([load_encoder(root / kind) for kind in ("head", "static")], (0.3, 0.7)), root / "pair")
    shutil.copytree(root / "head", root / "unsealed")
    (root / "unsealed" / ".checksums").unlink()
    return root


def vectors(folder: Path) -> np.ndarray:
    return encode(load_encoder(folder), TEXTS, precision="fp32")


@pytest.mark.parametrize("layout", ["plain", "unsealed", "head", "prompt", "layers", "static", "pair"])
def test_damage_is_refused_or_changes_nothing(folders, layout, tmp_path):
    """A sample of some hundred kinds of damage; all of them were tried once, without another outcome."""
    ways, expected = list(damages(folders / layout)), vectors(folders / layout)

    @hypothesis.given(strategies.sampled_from(ways))
    @hypothesis.settings(max_examples=40, deadline=None, database=None)
    def check(damage):
        folder = damaged(folders / layout, damage, tmp_path / "copy")
        try:
            found = vectors(folder)
        except UserError:
            return
        if layout in ("plain", "unsealed") and any(name in damage[0] for name in VALID):
            np.testing.assert_array_equal(found, vectors(folder))
        else:
            np.testing.assert_array_equal(found, expected, err_msg=damage[0])

    check()


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices of POSIX")
@pytest.mark.parametrize(
    "name", ["", ".checksums", "config.json", "tokenizer.json", "model.safetensors", "1_x/config.json"]
)
@pytest.mark.parametrize("endless", ["pipe", "/dev/zero"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused_at_once(bert, tmp_path, name, endless):
    folder = tmp_path / "model"
    shutil.copytree(bert, folder)
    if not name:
        shutil.rmtree(folder)
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if endless == "pipe" else path.symlink_to(endless)
    with pytest.raises(EncoderError, match=f"{path.name} is a pipe, a socket or a device: a model consists of files"):
        load_encoder(folder)
