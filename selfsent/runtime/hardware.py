"""What this machine does fastest, decided once, printed, and overridable: precision, threads, allocator.

On a CPU three things decide the speed of training a small encoder, none of them arithmetic that we write: bf16
matrix products (4 to 16 times the fp32 rate where the processor is made for them), not casting the weights to
bf16 again in every step, and not giving every large tensor back to the kernel only to fault its pages in again.
"""

import ctypes
import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from selfsent.errors import UserError, first_line
from selfsent.runtime.launch import launched_here
from selfsent.runtime.precision import require_precision

# mallopt(3) parameter numbers: glibc gives memory back above the first, maps blocks above the second separately,
# and asks for more by the third.  The largest values it takes.  By the fourth it maps no block separately: the gradient
# of a table of vectors above 32 MiB would be fresh pages in every step, which took four times as long (decision 0003).
_KEEP_THE_HEAP = {
    "M_TRIM_THRESHOLD": (-1, 2**31 - 1),
    "M_MMAP_THRESHOLD": (-3, 2**25),
    "M_TOP_PAD": (-2, 2**28),
    "M_MMAP_MAX": (-4, 0),
}


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The choices for this process, as they were made."""

    device: str  # "cpu", "cuda", "mps"
    precision: str  # "bf16" or "fp32"
    threads: int
    allocator: str  # "kept heap" or "system allocator"
    processor: str

    def line(self) -> str:
        """Say it in one line, for the head of a run."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.processor}, {self.device}, {self.precision}, {threads}, {self.allocator}"


def has_fast_bf16(device: str) -> bool:
    """Tell whether matrix products are faster in bf16, on instructions made for them."""
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device == "cpu":
        # oneDNN calls bf16 "supported" on any AVX-512 machine and then emulates it; only these flags make it fast.
        named = not {"avx512_bf16", "amx_bf16"}.isdisjoint(_cpuinfo("flags").split())
        cpu = torch.backends.cpu.get_cpu_capability()
        able = named and cpu.startswith("AVX512") and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return able and _bf16_products_are_faster()
    return False


@cache
def _bf16_products_are_faster() -> bool:
    """Time both, because the flags do not say it: 4 times faster on an AMD EPYC, half as fast on a Xeon without AMX.

    There the AVX-512 instruction for bf16 runs at a quarter of the rate of that for fp32, and the virtual machine hides
    AMX (decision 0004).  Both answers are so far from even that noise does not change them.
    """
    fastest = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for _ in range(7):  # the first of each compiles it
        for number in fastest:
            rows, weights = torch.ones(256, 512, dtype=number), torch.ones(512, 512, dtype=number)
            began = time.perf_counter()
            with torch.inference_mode():
                nn.functional.linear(rows, weights)
            fastest[number] = min(fastest[number], time.perf_counter() - began)
    return fastest[torch.bfloat16] < fastest[torch.float32]


def _cpuinfo(key: str) -> str:
    """Return what Linux says of the first core under ``key``; nothing elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return next((line.partition(":")[2].strip() for line in file if line.startswith(key)), "")
    except OSError:
        return ""


def keep_the_heap() -> bool:
    """Tell glibc to keep freed memory, because a fresh page costs more than the arithmetic done on it.

    Works inside a running process.  Returns False where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all(libc.mallopt(number, value) == 1 for number, value in _KEEP_THE_HEAP.values())


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def choose_hardware(
    *, precision: str = "auto", threads: int | None = None, device: str | None = None, keep_heap: bool = True
) -> Hardware:
    """Decide, apply to this process, and return what was decided.

    Raises:
        UserError: a precision that does not exist or that this machine does not have; a thread count below one.
    """
    require_precision(precision)
    if threads is not None and threads < 1:
        raise UserError(f"{threads} threads cannot work: give 1 or more, or leave it out for one a core")
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UserError(
                f"device {device!r} cannot be used here ({first_line(error)}): give cpu, cuda or mps, or leave it out"
            ) from error
    else:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if precision == "auto":
        precision = "bf16" if has_fast_bf16(device) else "fp32"
    said = os.environ.get("OMP_NUM_THREADS", "")
    threads = threads or (int(said) if said.isdecimal() else 0) or max(1, usable_cores() // launched_here())
    torch.set_num_threads(threads)
    kept = keep_heap and device == "cpu" and keep_the_heap()
    cpu = _cpuinfo("model name") or platform.processor() or platform.machine()
    return Hardware(
        device=device,
        precision=precision,
        threads=threads,
        allocator="kept heap" if kept else "system allocator",
        processor=torch.cuda.get_device_name() if device == "cuda" else cpu,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread alone for the block.

    Every thread in which torch uses several keeps a pool of its own.  Once the pools together have more threads than
    there are cores, libgomp stops spinning and puts them to sleep between operations, in all pools: a single text took
    1.4 to 2.2 times as long (decision 0025).  So where one thread computes, the others keep to themselves.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def bf16_weights(module: nn.Module) -> Iterator[None]:
    """Hold the matrices of ``module`` in bf16 for the block, for many forward passes without gradients."""
    exact = [(p, p.data) for p in module.parameters() if p.ndim >= 2 and p.dtype == torch.float32]
    for parameter, data in exact:
        parameter.data = data.to(torch.bfloat16)
    try:
        yield
    finally:
        for parameter, data in exact:
            parameter.data = data
