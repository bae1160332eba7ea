"""Texts to vectors by onnxruntime, from a folder that ``selfsent export`` wrote; torch is not asked."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from selfsent.encoder.folder import SETTINGS, read_settings, read_table
from selfsent.encoder.pair import spread_prompt
from selfsent.errors import EncoderError, first_line
from selfsent.export.onnx import require_onnx
from selfsent.progress import SILENT, Progress
from selfsent.text import clean

GRAPHS = ("onnx/model.onnx", "onnx/model_quantized.onnx")  # the names that other libraries look for: fp32, int8
_TOKENS_A_BATCH = 4096


class _Reader:
    """A tokenizer of an exported folder, and the inputs of the graph that its token ids are for."""

    def __init__(self, folder: Path, inputs: Sequence[str], end: str) -> None:
        """Open the tokenizer of a folder, for the inputs whose names end in ``end``."""
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._inputs = {name: name.removesuffix(end) for name in inputs if name.endswith(end)}
        settings = folder / "tokenizer_config.json"
        tokens = read_table(settings) if settings.is_file() else {}  # that of static vectors has none
        pad = tokens.get("pad_token")
        name = pad.get("content") if isinstance(pad, dict) else pad
        self._padding = self._tokenizer.token_to_id(str(name)) or 0  # under the mask it is never looked at
        self._tokenizer.encode_special_tokens = bool(tokens.get("split_special_tokens"))  # typed ones are text there
        self._read: list[Encoding] = []

    def read(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokenise texts; return the (N,) numbers of tokens."""
        self._read = self._tokenizer.encode_batch([clean.encodable(text) for text in texts])
        return np.array([len(encoding.ids) for encoding in self._read], np.int64)

    def feeds(self, rows: Sequence[int]) -> dict[str, NDArray[np.int64]]:
        """Return the inputs for some of the texts, (B, T) each; T is 1 or more."""
        longest = max(1, *(len(self._read[i].ids) for i in rows))
        ids = np.full((len(rows), longest), self._padding, np.int64)
        mask = np.zeros_like(ids)
        for row, i in enumerate(rows):
            ids[row, : len(self._read[i].ids)] = self._read[i].ids
            mask[row, : len(self._read[i].ids)] = self._read[i].attention_mask
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: arrays[kind] for name, kind in self._inputs.items()}


class OnnxEncoder:
    """An exported folder, opened.

    Its ``tokenizer.json`` cuts texts at the length of the encoder.  Of encoders side by side that read different tokens
    each has a tokenizer, in a folder of its number, and a prompt is for those that have some.
    """

    def __init__(self, folder: Path, *, threads: int = 0) -> None:
        """Open the one graph of a folder.

        Args:
            threads: of onnxruntime; 0: as many as there are cores.

        Raises:
            UserError: there is no graph or no tokenizer, one of them is damaged, or onnxruntime is not installed.
        """
        runtime = require_onnx("onnxruntime")
        graphs = [folder / name for name in GRAPHS if (folder / name).is_file()]
        tokenizers = [parent / "tokenizer.json" for parent in (folder, folder / "0")]
        if not graphs or not any(path.is_file() for path in tokenizers):
            raise EncoderError(f"{folder} holds no exported graph: expected {' or '.join(GRAPHS)} and tokenizer.json")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(str(graphs[0]), options, providers=["CPUExecutionProvider"])
            inputs = [entry.name for entry in self._session.get_inputs()]
            numbers = [name.removeprefix("input_ids_") for name in inputs if name.startswith("input_ids_")]
            self._readers = [_Reader(folder / number, inputs, f"_{number}") for number in numbers]
            self._prompts = [read_settings(folder / number).get("prompts") or {} for number in numbers]
            self._readers = self._readers or [_Reader(folder, inputs, "")]
        except Exception as error:  # of either library, in its own words
            raise EncoderError(f"{graphs[0]} cannot be opened ({first_line(error)}): export it again") from error
        self.graph = graphs[0]
        settings = read_table(folder / SETTINGS)
        self._prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "", "") or ""
        self._width = settings.get("truncate_dim")

    def encode(
        self, texts: Sequence[str], *, prompt: str | None = None, progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """Return the (N, D) embeddings, in the order of the texts; ``prompt`` replaces the folder's default one."""
        prompts = spread_prompt(self._prompt if prompt is None else prompt, self._prompts or [{}])
        read = zip(self._readers, prompts, strict=True)
        lengths = np.maximum.reduce([reader.read([own + text for text in texts]) for reader, own in read])
        order = np.argsort(-lengths, kind="stable").tolist()
        vectors: NDArray[np.float32] | None = None
        done = 0
        while done < len(order):
            batch = order[done : done + max(1, _TOKENS_A_BATCH // max(1, int(lengths[order[done]])))]
            feeds = {name: rows for reader in self._readers for name, rows in reader.feeds(batch).items()}
            (out,) = self._session.run(["sentence_embedding"], feeds)
            if vectors is None:
                vectors = np.empty((len(texts), out.shape[1]), np.float32)
            vectors[batch] = out
            done += len(batch)
            progress.report("encode", done, len(order))
        if vectors is None:
            (shape,) = (output.shape for output in self._session.get_outputs() if output.name == "sentence_embedding")
            vectors = np.empty((0, int(shape[1])), np.float32)
        return vectors[:, : self._width]
