"""Measure how many requests a second ``selfsent serve`` answers, and what it does with too many.

    python benchmarks/serve_load.py MODEL [--seconds 60] [--clients 1 8 64] [--overload 30] [--fuzz 10000] \
        [--hostile 300] [--json FILE]

Each server is a process of its own, and the clients are another, which sends one text of 8 to 40 words after the other
over kept connections.

    throughput   requests/s and p50 / p99 at each number of clients, in turns with ``SentenceTransformer.encode`` behind
                 the same FastAPI, which computes each request alone
    overload     ten times as many clients as requests that may be in work: what is answered, with which status, how
                 long accepted requests take, and how the memory grows
    fuzz         requests drawn by hypothesis from the types of /openapi.json and from their neighbours, and raw bytes,
                 all sent twice: no 5xx, memory, and whether the server still answers
    hostile      ten times the measured load, 1,000 connections, and clients that are slow, half-closed or gone, while
                 SIGHUP changes between two models: every vector is held against sentence-transformers'
    shutdown     SIGTERM under load: answers of the server and answers that reached a client
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import harness

BASELINE = """
import sys, threading
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

class Body(BaseModel):
    inputs: str | list[str]

model, lock, app = SentenceTransformer(sys.argv[1], device="cpu"), threading.Lock(), FastAPI()

@app.post("/embed")
def embed(body: Body) -> list[list[float]]:
    with lock:
        texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
        return model.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""
TEXT = "the of train rain quiet old ship book server index query update ticket printer garden river stone light"
WORDS = TEXT.split()


def body(draw: random.Random) -> bytes:
    """One request."""
    return json.dumps({"inputs": " ".join(draw.choices(WORDS, k=draw.randint(8, 40)))}).encode()


@contextmanager
def started(words: list[str], port: int):
    """Start a server, wait until it answers, and yield its process."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            try:
                status, _ = asyncio.run(request_once(port, body(random.Random(0))))
                assert status == 200, status
                break
            except (OSError, asyncio.IncompleteReadError):
                time.sleep(0.5)
        yield process
    finally:
        process.kill()
        process.wait()


def ours(model: str, port: int, *more: str) -> list[str]:
    """Return the command of our server."""
    return harness.selfsent("serve", f"m={model}", "--port", port, *more)


def memory(process: subprocess.Popen) -> float:
    """Return the resident megabytes of a process."""
    return harness.memory("VmRSS", process.pid) / 2**20


def head(content: bytes, path: str = "/embed") -> bytes:
    """Return what stands before the body of a request."""
    lines = (f"POST {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json")
    return "\r\n".join([*lines, f"content-length: {len(content)}", "", ""]).encode()


async def exchange(reader, writer, content: bytes, path: str = "/embed") -> tuple[int, bytes]:
    """Send one request over an open connection and read its answer."""
    writer.write(head(content, path) + content)
    await writer.drain()
    return await read_answer(reader)


async def read_answer(reader) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", answer, re.I)[1])
    return int(answer.split(b" ", 2)[1]), await reader.readexactly(length)


async def request_once(port: int, content: bytes, path: str = "/embed") -> tuple[int, bytes]:
    """Send one request over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await exchange(reader, writer, content, path)
    finally:
        writer.close()


async def load(port: int, clients: int, seconds: float) -> tuple[Counter, list[float]]:
    """Let clients send one request after the other; return the statuses and the seconds of those answered with 200."""
    ends, statuses, times = time.monotonic() + seconds, Counter(), []

    async def client(number: int) -> None:
        draw = random.Random(number)
        while time.monotonic() < ends:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                while time.monotonic() < ends:
                    began = time.monotonic()
                    status, _ = await exchange(reader, writer, body(draw))
                    statuses[status] += 1
                    if status == 200:
                        times.append(time.monotonic() - began)
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                statuses["not accepted"] += 1
                return

    await asyncio.gather(*(client(number) for number in range(clients)))
    return statuses, sorted(times)


def figures(statuses: Counter, times: list[float], seconds: float) -> dict:
    """Return requests/s and quantiles in milliseconds."""
    quantile = {p: round(1000 * times[min(len(times) - 1, int(len(times) * p / 100))], 1) for p in (50, 99)}
    return {"requests/s": round(len(times) / seconds, 1), "p50 ms": quantile[50], "p99 ms": quantile[99], **statuses}


def throughput(arguments: argparse.Namespace, port: int) -> dict:
    """Compare with the server without batching."""
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "baseline.py"
        script.write_text(BASELINE)
        unbatched = [sys.executable, str(script), harness.shipped(arguments.model), str(port)]
        sides = {"selfsent": ours(arguments.model, port), "unbatched": unbatched}
        for clients in arguments.clients:
            for name, words in sides.items():
                with started(words, port):
                    asyncio.run(load(port, clients, min(3.0, arguments.seconds)))
                    row = figures(*asyncio.run(load(port, clients, arguments.seconds)), arguments.seconds)
                results[f"{name}, {clients} clients"] = row
                print(f"{name}, {clients} clients: {row}", flush=True)
    return results


def overload(arguments: argparse.Namespace, port: int) -> dict:
    """Send ten times as many requests at once as may be in work."""
    with started(ours(arguments.model, port, "--set", "max_concurrent_requests=32"), port) as process:
        # Until batches of most shapes were met: each leaves its compiled product in memory.
        asyncio.run(load(port, 32, arguments.seconds))

        async def both() -> tuple[tuple[Counter, list[float]], list[int]]:
            loading, seen = asyncio.create_task(load(port, 320, arguments.overload)), [round(memory(process))]
            for _ in range(10):
                await asyncio.sleep(arguments.overload / 10)
                seen.append(round(memory(process)))
            return await loading, seen

        (statuses, times), seen = asyncio.run(both())
        row = figures(statuses, times, arguments.overload) | {"MB": seen}
        row["alive"] = asyncio.run(request_once(port, body(random.Random(1))))[0]
    print(f"overload: {row}", flush=True)
    return row


def fuzz(arguments: argparse.Namespace, port: int) -> dict:
    """Send what hypothesis draws, twice."""
    import hypothesis
    from hypothesis import strategies as st

    texts = st.text(max_size=60) | st.sampled_from(["", " ", "rain " * 700, "\x00", "\ud800", "a" * 20_000])
    plain = st.none() | st.booleans() | st.integers() | st.floats() | texts
    values = st.recursive(plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3))
    ids = st.lists(st.integers(-5, 40_000), max_size=20)
    inputs = texts | st.lists(texts, max_size=6) | ids | st.lists(ids | texts, max_size=4) | values
    keys = {
        "/embed": {"inputs": inputs, "normalize": st.booleans() | plain, "truncate": st.booleans() | plain}
        | {"prompt_name": st.none() | texts, "dimensions": st.integers(-2, 600) | plain},
        "/v1/embeddings": {"input": inputs, "model": st.sampled_from([None, "m", "x"]), "dimensions": plain}
        | {"encoding_format": st.sampled_from(["float", "base64", "x"]) | plain},
        "/similarity": {"inputs": st.fixed_dictionaries({"source_sentence": texts, "sentences": inputs}) | values},
        "/tokenize": {"inputs": inputs, "add_special_tokens": st.booleans() | plain},
        "/search": {"query": texts | values},
        "/nothing": {"inputs": values},
    }

    def dumped(value: object) -> bytes:
        return json.dumps(value).encode()

    requests = st.one_of(
        *(
            st.tuples(
                st.just(path), (st.fixed_dictionaries({}, optional=of) | values).map(dumped) | st.binary(max_size=80)
            )
            for path, of in keys.items()
        )
    )
    drawn: list[tuple[str, bytes]] = []

    @hypothesis.settings(
        max_examples=arguments.fuzz,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(requests)
    def draw(request: tuple[str, bytes]) -> None:
        drawn.append(request)

    draw()
    statuses, faults, seen = Counter(), [], []
    with started(ours(arguments.model, port), port) as process:
        for number, (path, content) in enumerate([*drawn, *drawn]):  # what leaks grows in the second turn, too
            if number % max(1, len(drawn) // 5) == 0:
                seen.append(round(memory(process), 1))
            status, answer = asyncio.run(request_once(port, content, path))
            statuses[status] += 1
            if status >= 500:
                faults.append((path, repr(content[:200]), answer[:200].decode()))
        seen.append(round(memory(process), 1))
        alive = asyncio.run(request_once(port, body(random.Random(1))))[0]
    row = {"requests": len(drawn), "statuses": dict(statuses), "5xx": faults[:3], "MB": seen, "alive": alive}
    print(f"fuzz: {row}", flush=True)
    return row


CLIENTS = {  # of the hostile measurement: how many of each kind
    "ten times the load": 320,
    "1,000 connections": 1000,  # each silent for a while, then one request
    "slow heads": 20,
    "slow bodies": 20,
    "slow readers": 20,
    "half-closed": 20,
    "gone": 20,
}


class Held:
    """Two models that a server has in turn, and what sentence-transformers makes of texts with them.

    ``log`` is the models in the order in which the served folder became them; the server has said that it opened that
    of place ``opened``.  An answer fits if it is by that one or by one that came later, until the answer was there.
    """

    def __init__(self, model: str, scratch: Path) -> None:
        import safetensors.torch
        from sentence_transformers import SentenceTransformer

        self.folders, self.served = (Path(harness.shipped(model)), scratch / "other"), scratch / "served"
        shutil.copytree(self.folders[0], self.folders[1])
        (self.folders[1] / ".checksums").unlink(missing_ok=True)
        weights = self.folders[1] / "model.safetensors"
        tensors = safetensors.torch.load_file(weights)
        largest = max(tensors, key=lambda name: tensors[name].numel())
        tensors[largest] = tensors[largest].flip(0).contiguous()  # every token has the vector of another
        safetensors.torch.save_file(tensors, weights, {"format": "pt"})
        draw = random.Random(0)
        self.texts = [" ".join(draw.choices(WORDS, k=draw.randint(8, 40))) for _ in range(400)]
        encoders = [SentenceTransformer(str(folder), device="cpu", trust_remote_code=True) for folder in self.folders]
        self.vectors = [encoder.encode(self.texts, normalize_embeddings=True) for encoder in encoders]
        self.log, self.opened = [], 0
        self.change()

    def change(self) -> None:
        """Make the served folder the other model."""
        model = len(self.log) % 2
        self.served.with_name("next").symlink_to(self.folders[model])
        self.log.append(model)
        self.served.with_name("next").replace(self.served)

    def listen(self, process: subprocess.Popen) -> None:
        """Read what the server says until it ends."""
        for line in process.stderr:
            self.opened += line.startswith("reloaded m")

    def fits(self, chosen: list[int], answer: bytes, first: int) -> bool:
        """Tell whether all vectors of an answer are those of one model that was there since a place of the log."""
        import numpy as np

        found = np.array(json.loads(answer))
        expected = [self.vectors[model][chosen] for model in {*self.log[first:]}]
        # sentence-transformers gives some in float16; the vectors of the two models differ by 0.1 and more
        return any(found.shape == right.shape and np.abs(found - right).max() < 1e-3 for right in expected)


async def one_request(kind: str, draw: random.Random, held: Held, reader, writer) -> str:
    """Ask as a client of a kind does; return the status, or that the vectors are wrong."""
    chosen = draw.sample(range(len(held.texts)), 64 if kind == "slow readers" else draw.randint(1, 4))
    content = json.dumps({"inputs": [held.texts[number] for number in chosen]}).encode()
    before = head(content)
    if kind == "1,000 connections":
        await asyncio.sleep(draw.uniform(5, 30))
    first = held.opened
    slow = {"slow heads": (0, len(before)), "slow bodies": (len(before), len(before) + len(content))}
    begin, end = slow.get(kind, (0, 0))
    request = before + content
    if kind == "slow readers":
        writer.write(request)
        request = b""
        await asyncio.sleep(5)
    answered = asyncio.ensure_future(read_answer(reader))
    writer.write(request[:begin])
    for byte in request[begin:end]:
        await asyncio.wait([answered], timeout=0.3)
        if not answered.done():  # by 408
            writer.write(bytes([byte]))
    if kind == "gone":
        answered.cancel()
        writer.write(request[: draw.randrange(len(request))])
        return "gone"
    if not answered.done():
        writer.write(request[end:])
    if kind == "half-closed":
        writer.write_eof()
    status, answer = await answered
    return str(status) if status != 200 or held.fits(chosen, answer, first) else "WRONG"


async def hostile_clients(port: int, seconds: float, rate: float, held: Held) -> dict[str, Counter]:
    """Let all clients ask for so many seconds; return the answers of each kind."""
    ends, seen = time.monotonic() + seconds, {kind: Counter() for kind in CLIENTS}
    every = CLIENTS["ten times the load"] / rate  # seconds between two requests of one of these

    async def client(kind: str, number: int) -> None:
        draw, due = random.Random(f"{kind} {number}"), time.monotonic() + number % 97 / 97 * every
        while time.monotonic() < ends:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
                try:
                    while time.monotonic() < ends:
                        if kind == "ten times the load":
                            await asyncio.sleep(due - time.monotonic())
                            due = max(due + every, time.monotonic() - every)
                        seen[kind][await one_request(kind, draw, held, reader, writer)] += 1
                        if kind != "ten times the load":
                            break
                finally:
                    writer.close()
            except (OSError, asyncio.IncompleteReadError):
                seen[kind]["closed"] += 1
                await asyncio.sleep(0.5)

    await asyncio.gather(*(client(kind, number) for kind, count in CLIENTS.items() for number in range(count)))
    return seen


def hostile(arguments: argparse.Namespace, port: int) -> dict:
    """Change the model of a server that has far too much to do, and hold every answer against the right vector."""
    with tempfile.TemporaryDirectory() as scratch:
        held = Held(arguments.model, Path(scratch))
        limits = ("--set", "max_concurrent_requests=64", "--set", "precision=fp32")
        with started(ours(str(held.served), port, *limits), port) as process:
            threading.Thread(target=held.listen, args=(process,), daemon=True).start()
            statuses, _ = asyncio.run(load(port, 32, 10.0))
            print(f"{statuses} in 10 s", flush=True)
            rate, ends, memories = 10 * (statuses[200] / 10.0), time.monotonic() + arguments.hostile, []

            def reload() -> None:
                while time.monotonic() < ends:
                    memories.append(round(memory(process)))
                    held.change()
                    process.send_signal(signal.SIGHUP)
                    time.sleep(10)

            reloading = threading.Thread(target=reload)
            reloading.start()
            seen = asyncio.run(hostile_clients(port, arguments.hostile, rate, held))
            reloading.join()
            alive = asyncio.run(request_once(port, body(random.Random(1))))[0]
            process.terminate()
            status = process.wait(60)
    row = {"seconds": arguments.hostile, "requests/s": rate, "models opened": held.opened, "of": len(held.log) - 1}
    row |= {"alive": alive, "status": status, "MB": memories} | seen
    print(f"hostile: {row}", flush=True)
    return row


def shutdown(arguments: argparse.Namespace, port: int) -> dict:
    """Stop the server while 64 clients send."""
    with started(ours(arguments.model, port), port) as process:
        loop = asyncio.new_event_loop()
        loop.call_later(5.0, process.send_signal, signal.SIGTERM)
        statuses, _ = loop.run_until_complete(load(port, 64, 60.0))
        loop.close()
        process.wait(60)
        counted = int(re.search(r"stopped after ([\d,]+) answers", process.stderr.read())[1].replace(",", ""))
    row = {"answers of the server": counted, "that reached a client": statuses[200] + 1, "status": process.returncode}
    print(f"shutdown: {row}", flush=True)
    return row


def main() -> None:
    """Print the figures."""
    parser = harness.options(__doc__)
    parser.add_argument("model", help="a folder, which sentence-transformers opens, too; or builtin")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 64])
    parser.add_argument("--overload", type=float, default=30.0, help="seconds; 0: leave it out")
    parser.add_argument("--fuzz", type=int, default=10_000, help="requests; 0: leave them out")
    parser.add_argument("--hostile", type=float, default=300.0, help="seconds; 0: leave it out")
    parser.add_argument("--no-shutdown", action="store_true")
    parser.add_argument("--port", type=int, default=18_123)
    arguments = parser.parse_args()
    results: dict = {"model": arguments.model, "threads": os.environ.get("OMP_NUM_THREADS")}
    wanted = {
        throughput: arguments.clients,
        overload: arguments.overload,
        fuzz: arguments.fuzz,
        hostile: arguments.hostile,
        shutdown: not arguments.no_shutdown,
    }
    for work, asked in wanted.items():
        if asked:
            results[work.__name__] = work(arguments, arguments.port)
    harness.keep(arguments, results)


if __name__ == "__main__":
    main()
