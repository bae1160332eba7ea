"""What is chosen for the machine."""

import time

import pytest
import torch
from torch import nn

from selfsent.errors import UserError
from selfsent.runtime import hardware


def test_threads_asked_for_by_openmp_s_variable_are_what_is_used(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.choose_hardware(precision="fp32").threads == 1


def test_a_device_that_does_not_exist_is_refused_by_its_name():
    with pytest.raises(UserError, match=r"device 'cdua' cannot be used here .*: give cpu, cuda or mps"):
        hardware.choose_hardware(device="cdua")


@pytest.mark.parametrize(("bf16", "fp32"), [(0.001, 0.004), (0.004, 0.001)])
def test_bf16_is_chosen_only_where_its_products_take_less_time(monkeypatch, bf16, fp32):
    def linear(rows, weights):
        assert rows.dtype == weights.dtype
        time.sleep(bf16 if rows.dtype == torch.bfloat16 else fp32)

    monkeypatch.setattr(hardware, "_cpuinfo", lambda key: "avx512_bf16")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(nn.functional, "linear", linear)
    hardware._bf16_products_are_faster.cache_clear()
    try:
        assert hardware.has_fast_bf16("cpu") is (bf16 < fp32)
    finally:
        hardware._bf16_products_are_faster.cache_clear()


def test_a_processor_without_bf16_instructions_is_not_timed(monkeypatch):
    monkeypatch.setattr(hardware, "_cpuinfo", lambda key: "avx512f avx2")
    monkeypatch.setattr(hardware, "_bf16_products_are_faster", lambda: pytest.fail("it was timed"))
    assert hardware.has_fast_bf16("cpu") is False
