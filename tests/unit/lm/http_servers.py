"""A real HTTP server on loopback that speaks SGLang and vLLM, with a real model behind it."""

from __future__ import annotations

import io
import json
import socket
import threading
from base64 import b64encode
from collections import deque
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch

_ROWS = "/inference/v1/generate"
ROUTES = ["/v1/models", "/tokenize", "/server_info", "/generate", "/v1/completions", _ROWS]
_WORK = ROUTES[3:]


def ids_of(body):
    """The token ids that a request sends."""
    return body.get("input_ids") or body.get("token_ids") or body.get("prompt")


def each_of(body):
    """A body for each prompt of a list."""
    ids, starts = body.get("input_ids") or [0], body.get("logprob_start_len")
    if isinstance(ids[0], int):
        return [body]
    pairs = zip(ids, starts, strict=True)
    return [body | {"input_ids": one, "logprob_start_len": start} for one, start in pairs]


def rows_of(values):
    """An array as vLLM sends it."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(values, dtype=np.float32))
    return b64encode(buffer.getvalue()).decode()


class ModelServer(ThreadingHTTPServer):
    """Serves one model; ``faults`` are used up by the next requests for work.

    Of every prompt vLLM's cache holds ``cached`` tokens; None forbids scores by position.

    Closing it ends its connections and waits for their threads: one that has computed and ends
    while the interpreter does would abort the process.
    """

    daemon_threads = False

    def __init__(self, model, tokenizer, *, key=None, window=200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model, self.tokenizer, self.key, self.window = model, tokenizer, key, window
        self.faults, self.requests, self.cached = deque(), [], None
        self.busy = self.most_busy = 0
        self.lock, self.counting = threading.Lock(), threading.Lock()
        self.closing = threading.Event()
        self.connections = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def worked(self):
        """Bodies of the requests for work that carry token ids."""
        bodies = [body for path, body in self.requests if path in _WORK and ids_of(body)]
        return [one for body in bodies for one in each_of(body)]

    def logprobs(self, ids):
        with self.lock, torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
        rows = torch.log_softmax(logits, dim=-1)
        return [None, *rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()]

    def written(self, ids, number, stop):
        new = []
        while len(new) < number:
            with self.lock, torch.inference_mode():
                logits = self.model(input_ids=torch.tensor([[*ids, *new]])).logits[0, -1]
            token = int(logits.argmax())
            if token == self.tokenizer.eos_token_id:
                return self._text(new), len(new), "stop"
            new.append(token)
            text = self._text(new)
            for mark in stop:
                if mark in text:
                    return text.partition(mark)[0], len(new), "stop"
        return self._text(new), number, "length"

    def _text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def get_request(self):
        accepted = super().get_request()
        self.connections.append(accepted[0])
        return accepted

    def server_close(self) -> None:
        self.closing.set()
        for connection in self.connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()

    def handle_error(self, request, client_address) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, body) -> None:
        server = self.server
        server.requests.append((self.path, body))
        if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
            return self.reply({"error": "who are you"}, status=401)
        work = self.path in _WORK and "text" not in body
        fault = server.faults.popleft() if work and server.faults else {}
        if fault.get("hang"):
            server.closing.wait(fault["hang"])
        if fault.get("drop"):
            self.close_connection = True
            return None
        if "status" in fault:
            return self.reply({"error": {"message": "fault"}}, **fault)
        route = getattr(self, self.path.rpartition("/")[2]) if self.path in ROUTES else None
        with server.counting:
            server.busy += 1
            server.most_busy = max(server.busy, server.most_busy)
        try:
            made = route(body) if route else None
        finally:
            with server.counting:
                server.busy -= 1
        if made is None:
            return self.reply({"error": "no such path"}, status=404)
        if "edit" in fault:
            fault["edit"](made[0] if isinstance(made, list) else made)
        return self.reply(made, **fault)

    def reply(
        self, made, *, status=200, truncate=False, headers=None, drip=0.0, body=b"", **_
    ) -> None:
        data = body or json.dumps(made).encode()
        if truncate:
            data = data[: len(data) // 2]
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        step = 20 if drip else len(data)
        for at in range(0, len(data), step):
            self.wfile.write(data[at : at + step])
            self.server.closing.wait(drip)

    def models(self, body):
        return {"data": [{"id": "served", "max_model_len": self.server.window}]}

    def tokenize(self, body):
        ids = self.server.tokenizer.encode(body["prompt"])
        return {"count": len(ids), "max_model_len": self.server.window, "tokens": ids}

    def server_info(self, body):
        return {"context_length": None, "max_req_input_len": self.server.window - 6}

    def rows(self, ids, sampling):
        server, start = self.server, sampling["prompt_logprob_start"]
        values = server.logprobs(ids)[start + 1 :]
        assert sampling["prompt_logprob_token_ids"] == [[i] for i in ids[start + 1 :]]
        assert sampling["skip_reading_prefix_cache"] is False
        scores = None if server.cached > start else rows_of([[value] for value in values])
        usage = {"prompt_tokens_details": {"cached_tokens": server.cached}}
        return {"usage": usage, "prompt_token_id_logprobs": scores}

    def generate(self, body):
        server, sampling = self.server, body["sampling_params"]
        if self.path == _ROWS:
            allowed = server.cached is not None and body["model"] == "served"
            return self.rows(body["token_ids"], sampling) if allowed else None
        if isinstance((body.get("input_ids") or [0])[0], list):
            return list(map(self.generate, each_of(body)))
        ids = body.get("input_ids") or server.tokenizer.encode(body["text"])
        text, number, reason = server.written(
            ids, sampling["max_new_tokens"], sampling.get("stop", [])
        )
        meta = {"prompt_tokens": len(ids), "completion_tokens": number, "cached_tokens": 0}
        meta["finish_reason"] = {"type": reason}
        if body.get("return_logprob"):
            start = body["logprob_start_len"]
            values = server.logprobs(ids)
            meta["cached_tokens"] = start
            meta["input_token_logprobs"] = [
                [None if n == start else values[n], ids[n], None] for n in range(start, len(ids))
            ]
        return {"text": text, "meta_info": meta}

    def completions(self, body):
        server, ids = self.server, body["prompt"]
        assert body["max_tokens"] >= 1
        if body["model"] != "served" or len(ids) + body["max_tokens"] > server.window:
            return None
        text, number, reason = server.written(ids, body["max_tokens"], body.get("stop", []))
        choice = {"index": 0, "text": text, "finish_reason": reason, "prompt_logprobs": None}
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [
                value and {str(i): {"logprob": value, "rank": 1, "decoded_token": "?"}}
                for i, value in zip(ids, server.logprobs(ids), strict=True)
            ]
        usage = {"prompt_tokens": len(ids), "completion_tokens": number}
        return {"object": "text_completion", "choices": [choice], "usage": usage}


@contextmanager
def serving(*arguments, **options):
    """A running server."""
    server = ModelServer(*arguments, **options)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
