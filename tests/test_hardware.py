"""What is chosen for the machine."""

import itertools

from selfsent import hardware


def test_the_ceiling_is_the_operations_of_one_product_over_its_seconds(monkeypatch):
    clock = itertools.count(0, 0.25)  # so that every product takes a quarter of a second
    monkeypatch.setattr(hardware.time, "perf_counter", lambda: next(clock))
    assert hardware.measure_ceiling("fp32", repeats=1) == 4 * 2 * 2048**3


def test_threads_asked_for_by_openmp_s_variable_are_what_is_used(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.choose_hardware(precision="fp32").threads == 1
