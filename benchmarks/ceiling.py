"""What this machine can do at most: matrix products per second in each precision, and bytes to and from memory.

Example: python benchmarks/ceiling.py

Every share of a ceiling that the other benchmarks print is one of ``measure_ceiling``, the large product below in bf16,
or in fp32 where this machine is faster in it (such as an Intel Xeon without AMX).  The shapes of an encoder's own
products stand beside it: what they reach is the limit of anything that is made of them, and the gap between the two is
not ours to close without other kernels.
"""

import statistics
import time
from collections.abc import Callable

import harness
import torch
from torch import Tensor

from selfsent.runtime import hardware

WORDS = 64 * 2 * 27  # tokens of a training step: 64 texts, two views
SHAPES = {  # rows, inner, columns
    "large": (4096, 4096, 4096),
    "6 x 256, inner": (WORDS, 256, 1024),
    "6 x 384, attention": (WORDS, 384, 384),
    "6 x 384, inner": (WORDS, 384, 1536),
    "6 x 384, gradient of the inner weights": (384, WORDS, 1536),
    "12 x 768, inner": (WORDS, 768, 3072),
}
BYTES = 1 << 28  # of a tensor that no cache holds


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median time of one call, after one that prepares."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


def products(dtype: torch.dtype, shape: tuple[int, int, int], repeats: int) -> float:
    """Return the floating-point operations a second of a product (rows, inner) x (inner, columns)."""
    rows, inner, columns = shape
    a, b = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
    out = torch.empty(rows, columns, dtype=dtype)
    return 2 * rows * inner * columns / median_seconds(lambda: torch.mm(a, b, out=out), repeats)


def measure_ceiling(precision: str | None = None, repeats: int = 5) -> float:
    """Return the floating-point operations a second that a large matrix product reaches on the CPU.

    Args:
        precision: None: the faster one.
    """
    precision = precision or ("bf16" if hardware.has_fast_bf16("cpu") else "fp32")
    dtype, size = (torch.bfloat16, 4096) if precision == "bf16" else (torch.float32, 2048)  # about a second either way
    return products(dtype, (size, size, size), repeats)


def training_operations(layers: int, width: int, vocabulary: int, length: int, mask_probability: float) -> float:
    """Count the operations of a masked-LM step per token: 6 for each weight that it is used with."""
    block = 12 * width**2 + 2 * width * length  # four projections, two of four times the width; attention
    return 6.0 * (layers * block + mask_probability * (vocabulary * width + width**2))


def bandwidth(repeats: int) -> dict[str, float]:
    """Return bytes a second: reading alone, copying, and writing memory that is fresh from the kernel."""
    source, target = torch.ones(BYTES // 4), torch.zeros(BYTES // 4)

    def fresh() -> Tensor:
        return torch.empty(BYTES // 4).fill_(1.0)  # the kernel hands it out page by page

    return {
        "read": BYTES / median_seconds(source.sum, repeats),
        "copy": 2 * BYTES / median_seconds(lambda: target.copy_(source), repeats),
        "write to fresh pages": BYTES / median_seconds(fresh, repeats),
    }


def main() -> None:
    """Measure and print."""
    arguments = harness.options(__doc__, repeats=7).parse_args()
    # The heap is not kept: fresh pages are one of the things that are measured.
    machine = hardware.choose_hardware(keep_heap=False)
    print(f"{machine.line()}\n")
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    figures: dict[str, float] = {}
    harness.head("product", "rows x inner x columns", *(f"{kind}, TFLOP/s" for kind in kinds))
    for name, shape in SHAPES.items():
        rates = {kind: products(dtype, shape, arguments.repeats) / 1e12 for kind, dtype in kinds.items()}
        figures |= {f"{name}, {kind}": rate for kind, rate in rates.items()}
        harness.row(name, " x ".join(map(str, shape)), *(f"{rate:.2f}" for rate in rates.values()))
    print()
    harness.head("memory", "GB/s")
    for name, value in bandwidth(arguments.repeats).items():
        figures[name] = value / 1e9
        harness.row(name, f"{value / 1e9:.1f}")
    harness.keep_figures(arguments, figures)


if __name__ == "__main__":
    main()
