"""Texts to vectors by onnxruntime, from a folder that ``selfsent export`` wrote; torch is not asked."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from selfsent.encoder.model_folder import read_table
from selfsent.errors import EncoderError, first_line
from selfsent.export.onnx_graph import require_onnx
from selfsent.progress import SILENT, Progress

GRAPHS = ("onnx/model.onnx", "onnx/model_quantized.onnx")  # the names that other libraries look for: fp32, int8
_TOKENS_A_BATCH = 4096


class OnnxEncoder:
    """An exported folder, opened.

    Its ``tokenizer.json`` cuts texts at the length of the encoder; the folder's default prompt is put before them.
    """

    def __init__(self, folder: Path, *, threads: int = 0) -> None:
        """Open the one graph of a folder.

        Args:
            threads: of onnxruntime; 0: as many as there are cores.

        Raises:
            UserError: there is no graph or no tokenizer, one of them is damaged, or onnxruntime is not installed.
        """
        runtime = require_onnx("onnxruntime")
        found = [folder / name for name in GRAPHS if (folder / name).is_file()]
        if not found or not (folder / "tokenizer.json").is_file():
            raise EncoderError(f"{folder} holds no exported graph: expected {' or '.join(GRAPHS)} and tokenizer.json")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._session = runtime.InferenceSession(str(found[0]), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of either library, in its own words
            raise EncoderError(f"{found[0]} cannot be opened ({first_line(error)}): export it again") from error
        self.graph = found[0]
        self._inputs = [one.name for one in self._session.get_inputs()]
        settings = read_table(folder / "config_sentence_transformers.json")
        self._prompt = (settings.get("prompts") or {}).get(settings.get("default_prompt_name") or "", "") or ""
        self._width = settings.get("truncate_dim")
        tokens = read_table(folder / "tokenizer_config.json")
        pad = tokens.get("pad_token")
        name = pad.get("content") if isinstance(pad, dict) else pad
        self._padding = self.tokenizer.token_to_id(str(name)) or 0  # under the mask it is never looked at
        self.tokenizer.encode_special_tokens = bool(tokens.get("split_special_tokens"))  # typed ones are text there

    def encode(self, texts: Sequence[str], *, progress: Progress = SILENT) -> NDArray[np.float32]:
        """Return the (N, D) embeddings, in the order of the texts."""
        self.tokenizer.no_padding()
        found = self.tokenizer.encode_batch([self._prompt + text for text in texts])
        order = sorted(range(len(found)), key=lambda i: -len(found[i].ids))
        vectors: NDArray[np.float32] | None = None
        done = 0
        while done < len(order):
            longest = max(1, len(found[order[done]].ids))
            batch = order[done : done + max(1, _TOKENS_A_BATCH // longest)]
            ids = np.full((len(batch), longest), self._padding, np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(batch):
                ids[row, : len(found[i].ids)] = found[i].ids
                mask[row, : len(found[i].ids)] = found[i].attention_mask
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            (out,) = self._session.run(["sentence_embedding"], {name: feeds[name] for name in self._inputs})
            if vectors is None:
                vectors = np.empty((len(texts), out.shape[1]), np.float32)
            vectors[batch] = out
            done += len(batch)
            progress.report("encode", done, len(order))
        if vectors is None:
            (shape,) = (one.shape for one in self._session.get_outputs() if one.name == "sentence_embedding")
            vectors = np.empty((0, int(shape[1])), np.float32)
        return vectors[:, : self._width]
