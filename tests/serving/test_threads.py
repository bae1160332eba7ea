"""One pool of torch's threads in a server: that of the thread that computes."""

import subprocess
import sys

import pytest

OPEN_AND_EMBED = """
import os
from concurrent.futures import ThreadPoolExecutor

import torch

from selfsent.serving.served import ServedModels

threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(60)
before = threads()
model = next(iter(ServedModels(["builtin"]))).encoder
opened = threads()
pieces = model.tokenize(["a cat sleeps in the garden"] * 64)
ThreadPoolExecutor(1).submit(model.embed_tokenized, pieces).result()
print(opened - before, threads() - opened, torch.get_num_threads())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_opening_a_model_starts_no_pool_of_threads_and_computing_starts_one():
    done = subprocess.run([sys.executable, "-c", OPEN_AND_EMBED], capture_output=True, text=True, check=True)
    opening, computing, threads = map(int, done.stdout.split())
    # A pool has 59 threads beside the one that asks; on a busy machine fewer of them were there to be counted.
    assert opening < 20
    assert 20 <= computing < 80
    assert threads == 60
