"""Tiny encoders that tests open again and again: read from disk once, and copied from then on."""

import copy
from collections import OrderedDict
from collections.abc import Callable

import torch
import xxhash

from selfsent.encoder.inspect import transformer_of

_KEPT, _BYTES = 24, 4 << 20  # results of each function; the largest folder that is read only once


def once(function: Callable) -> Callable:
    """Return a function of a folder and settings, whose result is copied where the folder's files are the same.

    It leaves torch's generator as it was, whether it reads or copies.
    """
    results: OrderedDict = OrderedDict()

    def remembering(folder, *settings):
        paths = sorted(path for path in folder.path.rglob("*") if path.is_file())
        if sum(path.stat().st_size for path in paths) > _BYTES:
            return function(folder, *settings)
        content = xxhash.xxh3_128()
        for path in paths:
            content.update(f"{path.relative_to(folder.path)} {path.stat().st_size} ".encode() + path.read_bytes())
        key = content.digest(), *settings
        if key not in results:
            with torch.random.fork_rng(devices=[]):
                results[key] = function(folder, *settings)
            if len(results) > _KEPT:
                results.popitem(last=False)
        results.move_to_end(key)
        encoder = copy.deepcopy(results[key])
        model = transformer_of(encoder)
        if model is not None:  # which reads a head from the folder that it came from
            model.name_or_path = model.config._name_or_path = encoder.tokenizer.name_or_path = str(
                folder.modules[0].path
            )
        return encoder

    return remembering
