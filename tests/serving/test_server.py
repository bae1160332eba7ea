"""The server as a process of its own: clients of others, signals, and a port that is taken."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import numpy as np
import openai
import pytest
from tiny import TEXTS

from selfsent.encoder.load import load_encoder
from selfsent.encoder.save import save_encoder
from selfsent.errors import ConfigurationError
from selfsent.searching.index import Index
from selfsent.serving.protocol import KnownHosts, is_loopback
from selfsent.serving.server import open_port


@contextmanager
def server(*words):
    """Start the command, and yield its process and port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "selfsent", "serve", *words, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    late = threading.Timer(120, process.kill)  # a line that never comes ends a test, too
    late.start()
    try:
        for line in process.stderr:
            if address := re.search(r"on http://127\.0\.0\.1:(\d+)", line):
                break
        else:
            raise AssertionError("the server did not start")
        yield process, int(address[1])
    finally:
        late.cancel()
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("listen") / "model"
    save_encoder(load_encoder(bert), folder)
    return folder


def post(port, body, path="/embed", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_server_answers_openais_client_reloads_and_stops_without_losing_a_request(folder):
    with server(str(folder), "--name", "m", "--set", "precision=fp32") as (process, port):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        vectors = load_encoder(folder).encode(TEXTS, normalize_embeddings=True)
        answer = client.embeddings.create(model="text-embedding-3-small", input=TEXTS)
        np.testing.assert_allclose([row.embedding for row in answer.data], vectors, atol=1e-4)
        assert [model.id for model in client.models.list()] == ["m"]
        assert answer.model == "m"
        with pytest.raises(openai.BadRequestError, match="the input is empty"):
            client.embeddings.create(model="m", input="")
        process.send_signal(signal.SIGHUP)
        assert "reloaded m" in process.stderr.readline()

        answers = [0] * 8

        def ask(number):
            with suppress(ConnectionError, http.client.RemoteDisconnected):  # it no longer reads requests
                while True:
                    status, rows = post(port, {"inputs": TEXTS})
                    assert (status, len(rows)) == (200, len(TEXTS))
                    answers[number] += 1
                    if sum(answers) == 50:
                        process.terminate()

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        assert process.wait(60) == 0
        for thread in threads:
            thread.join()
        counted = int(re.search(r"stopped after (\d+) answers", process.stderr.read())[1])
        assert counted == sum(answers) + 2  # the client's embeddings and models


def test_hangup_opens_an_updated_index_a_client_that_leaves_stops_nobody_and_a_second_signal_all(tmp_path):
    corpus, added = tmp_path / "corpus.txt", "the cat saw the dog by the river"
    corpus.write_text("\n".join(TEXTS) + "\n")
    Index.make([corpus], tmp_path / "index", model="builtin-static")  # whose server starts without torch
    with server("--index", str(tmp_path / "index"), "--set", "body_timeout=3600") as (process, port):
        gone, half = (http.client.HTTPConnection("127.0.0.1", port) for _ in range(2))
        gone.request("POST", "/embed", json.dumps({"inputs": TEXTS * 300}), {"content-type": "application/json"})
        gone.close()
        half.putrequest("POST", "/embed")
        half.putheader("content-length", "100")
        half.endheaders(b'{"inputs"')
        half.close()
        assert post(port, {"inputs": TEXTS})[0] == 200
        status, answer = post(port, {"query": "rain"}, "/search", host=f"evil.example:{port}")
        assert (status, answer["error_type"]) == (421, "Misdirected")
        corpus.write_text("\n".join([*TEXTS, added]) + "\n")
        Index.open(tmp_path / "index").update([corpus])
        process.send_signal(signal.SIGHUP)
        assert "reloaded" in process.stderr.readline()  # the model
        assert "reloaded index: 7 documents" in process.stderr.readline()
        status, answer = post(port, {"query": added, "top": 1}, "/search")
        assert (status, answer["results"][0]["hits"][0]["text"]) == (200, added)
        half = http.client.HTTPConnection("127.0.0.1", port)
        half.putrequest("POST", "/embed")
        half.putheader("content-length", "100")
        half.endheaders(b'{"inputs"')
        assert post(port, {"inputs": TEXTS})[0] == 200  # the half was read before
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):  # it waits for the rest of the request
            process.wait(1)
        process.terminate()
        process.wait(60)
        half.close()


def test_a_port_that_is_taken_is_said():
    with open_port("127.0.0.1", 0) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{number} .*give another --port"):
            open_port("127.0.0.1", number)
    with pytest.raises(ConfigurationError, match="between 0 and 65535"):
        open_port("127.0.0.1", 70_000)


def test_only_addresses_of_this_machine_are_called_so():
    assert all(is_loopback(host) for host in ("127.0.0.1", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "example.org"))


LOCAL = ("localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.0.0.1", "LocalHost", "localhost.:80", "[::1]")
REBOUND = ("evil.example:8080", "127.0.0.1.evil.example", "localhost.evil.example", "", "[", "::1]:80", "x@localhost")


@pytest.mark.parametrize(
    ("host", "allowed", "known", "unknown"),
    [
        ("127.0.0.1", (), LOCAL, (*REBOUND, "192.168.1.5:8080", "embed.lan")),
        ("localhost", ("Search.example",), (*LOCAL, "search.example:80"), REBOUND),
        ("::1", ("*",), (*LOCAL, *REBOUND), ()),
        ("192.168.1.5", (), (*LOCAL, "192.168.1.5:8080"), REBOUND),
        ("embed.lan", (), (*LOCAL, "embed.lan:8080", "192.168.1.5:8080"), (*REBOUND, "other.lan")),
        ("0.0.0.0", (), (*LOCAL, "192.168.1.5:8080", "[fe80::1]:80", socket.gethostname()), REBOUND),
        ("::", ("a.example",), (*LOCAL, "10.0.0.1", "a.example"), REBOUND),
    ],
)
def test_a_server_answers_to_its_own_names_and_to_addresses_but_to_no_name_that_was_rebound(
    host, allowed, known, unknown
):
    hosts = KnownHosts(host, allowed)
    assert [name for name in known if name not in hosts] == []
    assert [name for name in unknown if name in hosts] == []


OPEN_AND_EMBED = """
import os
from concurrent.futures import ThreadPoolExecutor

import torch

from selfsent.serving.served import ServedModels

threads = lambda: len(os.listdir("/proc/self/task"))
torch.set_num_threads(40)
before = threads()
model = next(iter(ServedModels(["builtin"]))).encoder
opened = threads()
pieces = model.tokenize(["a cat sleeps in the garden"] * 8)
asking = ThreadPoolExecutor(1)
for _ in range(20):  # on a busy machine the threads of a pool come late, or some leave at once
    asking.submit(model.embed_tokenized, pieces).result()
    if threads() - opened > 39:
        break
print(opened - before, threads() - opened, torch.get_num_threads())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_opening_a_model_starts_no_pool_of_threads_and_computing_starts_one():
    done = subprocess.run([sys.executable, "-c", OPEN_AND_EMBED], capture_output=True, text=True, check=True)
    opening, computing, threads = map(int, done.stdout.split())
    # A pool has 39 threads beside the one that asks, of which a busy machine may show fewer.
    assert opening < 13
    assert 13 <= computing < 60
    assert threads == 40
