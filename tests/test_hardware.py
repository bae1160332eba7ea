"""What is chosen for the machine."""

from selfsent import hardware


def test_threads_asked_for_by_openmp_s_variable_are_what_is_used(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.choose_hardware(precision="fp32").threads == 1
