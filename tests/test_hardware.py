"""What is chosen for the machine."""

import pytest

from selfsent import hardware
from selfsent.errors import UserError


def test_threads_asked_for_by_openmp_s_variable_are_what_is_used(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert hardware.choose_hardware(precision="fp32").threads == 1


def test_a_device_that_does_not_exist_is_refused_by_its_name():
    with pytest.raises(UserError, match=r"device 'cdua' cannot be used here .*: give cpu, cuda or mps"):
        hardware.choose_hardware(device="cdua")
