"""Encoding throughput, side by side in one run: SentenceTransformer.encode in fp32 and bf16, and ours.

Example: python benchmarks/encode_throughput.py all-MiniLM-L6-v2 --texts sentences.txt --json throughput.json

Two more sides join where their packages are installed (pip install onnx onnxscript onnxruntime openvino): ONNX Runtime
with weights in int8, a scale for each channel, as such models are published; and OpenVINO in bf16.  Both get texts
sorted by length and the peer's batches.

Each measurement is a fresh process that loads, warms up and encodes all texts once; the sides take turns, so that a
drift of the machine meets all of them.  Cosines are to the fp32 vectors of sentence-transformers.  With --cpu-time
seconds are those of the processor, for a machine that others use, too.
"""

import argparse
import importlib.util
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

import harness
import numpy as np

NEEDS = {  # side: packages without which it is left out
    "peer fp32": (),
    "peer bf16": (),
    "onnx int8": ("onnx", "onnxscript", "onnxruntime"),
    "openvino bf16": ("onnx", "onnxscript", "openvino"),
    "ours": (),
}
SIDES = tuple(side for side, names in NEEDS.items() if all(map(importlib.util.find_spec, names)))
Forward = Callable[[dict[str, np.ndarray]], np.ndarray]  # ids and masks (B, T) to states (B, T, D)


def exported(model: str, folder: Path, int8: bool) -> Path:
    """Write a BERT in the ONNX format, once, with its weights in int8 if so asked."""
    import torch
    from sentence_transformers import SentenceTransformer

    exact, quantized = folder / "model.onnx", folder / "model-int8.onnx"
    if not exact.is_file():
        opened = SentenceTransformer(model, device="cpu", model_kwargs={"attn_implementation": "eager"})
        bert, batch = opened[0].model.eval(), opened.tokenizer(["a text", "another"], return_tensors="pt", padding=True)

        class States(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.bert = bert

            def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
                states: torch.Tensor = self.bert(**dict(zip(batch, tensors, strict=True))).last_hidden_state
                return states

        free = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
        torch.onnx.export(
            States(),
            tuple(batch.values()),
            str(exact),
            input_names=list(batch),
            dynamic_shapes=((free,) * len(batch),),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    if int8 and not quantized.is_file():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(exact, quantized, weight_type=QuantType.QInt8, per_channel=True)
    return quantized if int8 else exact


def onnx_runtime(file: Path, threads: int) -> Forward:
    """Open a file of ONNX with ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda tokens: session.run(None, tokens)[0]


def openvino(file: Path, threads: int) -> Forward:
    """Open a file of ONNX with OpenVINO, its products in bf16."""
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": str(threads)}
    request = openvino.Core().compile_model(str(file), "CPU", hints).create_infer_request()
    return lambda tokens: request.infer(tokens)[0]


def by_mean(model: str, forward: Forward, batch_size: int) -> Callable[[list[str]], np.ndarray]:
    """Return an encoder that averages the states of its tokens, as all-MiniLM-L6-v2 does."""
    from sentence_transformers import SentenceTransformer

    opened = SentenceTransformer(model, device="cpu")
    tokenizer, width, cut = opened.tokenizer, opened.get_embedding_dimension(), opened.max_seq_length
    del opened

    def run(texts: list[str]) -> np.ndarray:
        vectors = np.empty((len(texts), width), np.float32)
        order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            batch = [texts[row] for row in rows]
            tokens = dict(tokenizer(batch, padding=True, truncation=True, max_length=cut, return_tensors="np"))
            mask = tokens["attention_mask"][..., None]
            vectors[rows] = (forward(tokens) * mask).sum(1) / mask.sum(1)
        return vectors

    return run


def encode(arguments: argparse.Namespace, texts: list[str]) -> tuple[np.ndarray, float, dict[str, float]]:
    """Encode by one side; return vectors, seconds and what only this side can tell."""
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    if arguments.side == "ours":
        from selfsent.encoder.encode import encode
        from selfsent.encoder.load import load_encoder
        from selfsent.runtime import hardware

        hardware.choose_hardware(threads=arguments.threads)
        encoder = load_encoder(arguments.model)

        def run(batch: list[str]) -> np.ndarray:
            return encode(encoder, batch, precision=arguments.precision)

    elif arguments.side in ("onnx int8", "openvino bf16"):
        int8 = arguments.side == "onnx int8"
        file = exported(arguments.model, arguments.folder, int8)
        forward = (onnx_runtime if int8 else openvino)(file, arguments.threads)
        run = by_mean(arguments.model, forward, arguments.batch_size)
    else:
        import torch
        from sentence_transformers import SentenceTransformer

        torch.set_num_threads(arguments.threads)
        dtype = torch.bfloat16 if arguments.side.endswith("bf16") else torch.float32
        model = SentenceTransformer(arguments.model, device="cpu", model_kwargs={"dtype": dtype})

        def run(batch: list[str]) -> np.ndarray:
            return model.encode(batch, batch_size=arguments.batch_size, show_progress_bar=False)

    run(texts[:256])
    began = clock()
    vectors = run(texts)
    seconds = clock() - began
    more = share(encoder, texts, seconds) if arguments.side == "ours" else {}
    return np.asarray(vectors, dtype=np.float32), seconds, more


def share(encoder: object, texts: list[str], seconds: float) -> dict[str, float]:
    """Hold 2 x parameters outside the embeddings x tokens a second against what a large product reaches here."""
    from ceiling import measure_ceiling

    from selfsent.encoder.inspect import max_length_of, transformer_of

    model = transformer_of(encoder)
    inner = sum(p.numel() for name, p in model.named_parameters() if "embeddings" not in name)
    ids = encoder.tokenizer(texts, truncation=True, max_length=max_length_of(encoder))["input_ids"]
    return {"share": 2.0 * inner * sum(map(len, ids)) / seconds / measure_ceiling()}


def main() -> None:
    """Measure each side in turn and print medians, ratios, cosines and memory."""
    parser = harness.options(__doc__, repeats=3, sides=(*SIDES, "export"))
    parser.add_argument("model", help="a folder of sentence-transformers, or 'builtin'")
    parser.add_argument("--texts", type=Path, required=True, help="a file, a text a line")
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--batch-size", type=int, default=32, help="of the peer, whose default it is")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--precision", default="auto", help="of ours")
    parser.add_argument("--cpu-time", action="store_true", help="seconds of the processor instead of the clock's")
    arguments = parser.parse_args()
    with arguments.texts.open(encoding="utf-8") as file:
        texts = [line.rstrip("\n") for line, _ in zip(file, range(arguments.count), strict=False)]
    arguments.model = harness.shipped(arguments.model)
    if arguments.side == "export":
        exported(arguments.model, arguments.folder, "onnx int8" in SIDES)
        return None
    if arguments.side:  # one measurement, in a process of its own
        vectors, seconds, more = encode(arguments, texts)
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        np.save(arguments.folder / f"{arguments.side}.npy", vectors)
        rate = len(texts) / seconds
        return harness.leave(arguments, {"rate": rate, "seconds": seconds, "memory": kibibytes / 1024, **more})

    folder = Path(mkdtemp(prefix="encode-throughput-"))
    print(f"{len(texts):,} texts, {arguments.threads} thread(s), medians of {arguments.repeats}", flush=True)
    if any("onnx" in NEEDS[side] for side in SIDES):
        words = [sys.executable, "-W", "ignore", *sys.argv, "--folder", str(folder), "--side", "export"]
        subprocess.run(words, check=True, stdout=sys.stderr)
    measured = harness.take_turns(SIDES, arguments.repeats, folder, "rate", "texts/s")
    exact, table = np.load(folder / f"{SIDES[0]}.npy"), {}
    for side, runs in measured.items():
        cosine = harness.cosines(np.load(folder / f"{side}.npy"), exact)
        ratio = statistics.median(a["rate"] / b["rate"] for a, b in zip(runs, measured[SIDES[0]], strict=True))
        table[side] = {
            "texts_per_second": statistics.median(run["rate"] for run in runs),
            "ratio_to_peer_fp32": ratio,
            "cosine_min": float(cosine.min()),
            "cosine_mean": float(cosine.mean()),
            "peak_memory_mib": statistics.median(run["memory"] for run in runs),
        }
        print(
            f"{side:<10} {table[side]['texts_per_second']:8.1f} texts/s  x {ratio:5.2f}  cosine to fp32: least "
            f"{cosine.min():.5f}, mean {cosine.mean():.5f}  {table[side]['peak_memory_mib']:,.0f} MiB"
        )
    ratios = harness.ratios(measured, "rate")
    ratios["share"] = statistics.median(run["share"] for run in measured["ours"])
    for name, ratio in ratios.items():
        if name != "share" or not arguments.cpu_time:  # the ceiling goes by the clock
            print(f"{name if name != 'share' else 'share of the ceiling, tokenisation included'}: {ratio:.2f}")
    harness.keep_figures(arguments, table, ratios=ratios)


if __name__ == "__main__":
    main()
