"""What is chosen for the machine."""

from selfsent import hardware


def test_the_ceiling_is_a_rate_of_operations():
    assert 1e9 < hardware.ceiling("fp32", repeats=1) < 1e15


def test_threads_asked_for_by_openmp_s_variable_are_what_is_used(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.choose(precision="fp32").threads == 1
