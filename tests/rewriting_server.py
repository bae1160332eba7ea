"""A local chat server whose every answer, failure, stall and rate limit the test chooses."""

import json
import threading
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def chat(content, finish="stop"):
    """Return the body of a chat completion."""
    return {
        "id": "one",
        "object": "chat.completion",
        "created": 0,
        "model": "tiny",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


class Server(ThreadingHTTPServer):
    """Answers with what ``answer(text, number of this request for that text)`` returns.

    That is a dict (a body), bytes (a body as it is), (status, body, headers), "stall", "hang up" or "drip": a byte
    every 50 ms.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.lock = threading.Lock()
        self.requests = []  # (text, body, headers)
        self.asked = Counter()
        self.over = threading.Event()
        self.under_way = self.most_under_way = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Say nothing."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"].split("\n")[-1]
        server = self.server
        with server.lock:
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
            server.asked[text] += 1
            server.requests.append((text, body, {k.lower(): v for k, v in self.headers.items()}, self.path))
            number = server.asked[text]
        try:
            answer = server.answer(text, number)
            if answer == "stall":
                server.over.wait(20)
                answer = "hang up"
            if answer == "hang up":
                self.close_connection = True
                return
            if answer == "drip":
                while not server.over.wait(0.05):
                    self.wfile.write(b"H")
                return
            status, content, headers = answer if isinstance(answer, tuple) else (200, answer, {})
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.lock:
                server.under_way -= 1


@contextmanager
def serving(answer):
    """Serve for the block."""
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
