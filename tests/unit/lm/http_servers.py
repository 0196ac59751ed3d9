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
_WORK = ["/generate", "/v1/completions", _ROWS]
ROUTES = ["/v1/models", "/tokenize", *_WORK]


def ids_of(body):
    """The token ids that a request sends."""
    return body.get("input_ids") or body.get("token_ids") or body.get("prompt")


def each_of(body):
    """A body for each prompt of a list."""
    if not holds_several(body):
        return [body]
    pairs = zip(body["input_ids"], body["logprob_start_len"], strict=True)
    return [body | {"input_ids": ids, "logprob_start_len": start} for ids, start in pairs]


def holds_several(body):
    """Return True if a request has a list of prompts."""
    first, *_ = body.get("input_ids") or [0]
    return isinstance(first, list)


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
        self.model = model
        self.tokenizer = tokenizer
        self.key = key
        self.window = window
        self.owner = "vllm"
        self.faults = deque()
        self.requests = []
        self.cached = None
        self.busy = 0
        self.most_busy = 0
        self.lock = threading.Lock()
        self.counting = threading.Lock()
        self.closing = threading.Event()
        self.connections = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def worked(self):
        """Bodies of the requests for work that carry token ids."""
        bodies = []
        for path, body in self.requests:
            if path in _WORK and ids_of(body):
                bodies.extend(each_of(body))
        return bodies

    def logprobs(self, ids):
        with self.lock, torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
        rows = torch.log_softmax(logits, dim=-1)
        targets = torch.tensor(ids[1:])
        chosen = rows.gather(1, targets[:, None])
        return [None, *chosen[:, 0].tolist()]

    def written(self, ids, number, stop):
        new = []
        while len(new) < number:
            fed = torch.tensor([[*ids, *new]])
            with self.lock, torch.inference_mode():
                logits = self.model(input_ids=fed).logits[0, -1]
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
        length = int(self.headers["Content-Length"])
        self.answer(json.loads(self.rfile.read(length)))

    def answer(self, body) -> None:
        server = self.server
        server.requests.append((self.path, body))
        if server.key and self.headers.get("Authorization") != f"Bearer {server.key}":
            return self.reply({"error": "who are you"}, status=401)
        is_work = self.path in _WORK and "text" not in body
        fault = server.faults.popleft() if is_work and server.faults else {}
        server.closing.wait(fault.get("hang", 0.0))
        if fault.get("drop"):
            self.close_connection = True
            return None
        if "status" in fault:
            return self.reply({"error": {"message": "fault"}}, **fault)
        answer = self.computed(body)
        if answer is None:
            return self.reply({"error": "no such path"}, status=404)
        if "edit" in fault:
            fault["edit"](answer[0] if isinstance(answer, list) else answer)
        return self.reply(answer, **fault)

    def computed(self, body):
        """The answer of a path, computed among those counted as busy; None if there is none."""
        server = self.server
        if self.path not in ROUTES:
            return None
        *_, name = self.path.split("/")
        with server.counting:
            server.busy += 1
            server.most_busy = max(server.busy, server.most_busy)
        try:
            return getattr(self, name)(body)
        finally:
            with server.counting:
                server.busy -= 1

    def reply(
        self, answer, *, status=200, truncate=False, headers=None, drip=0.0, body=b"", **_
    ) -> None:
        data = body or json.dumps(answer).encode()
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
        owner = self.server.owner
        served = {"id": "served", "owned_by": owner, "max_model_len": self.server.window}
        return {"data": [served]}

    def tokenize(self, body):
        ids = self.server.tokenizer.encode(body["prompt"])
        return {"count": len(ids), "max_model_len": self.server.window, "tokens": ids}

    def rows(self, ids, sampling):
        server = self.server
        start = sampling["prompt_logprob_start"]
        first = start + 1
        values = server.logprobs(ids)[first:]
        assert sampling["prompt_logprob_token_ids"] == [[token] for token in ids[first:]]
        assert sampling["skip_reading_prefix_cache"] is False
        scores = None
        if server.cached <= start:
            scores = rows_of([[value] for value in values])
        usage = {"prompt_tokens_details": {"cached_tokens": server.cached}}
        return {"usage": usage, "prompt_token_id_logprobs": scores}

    def generate(self, body):
        server = self.server
        sampling = body["sampling_params"]
        if self.path == _ROWS:
            is_allowed = server.cached is not None and body["model"] == "served"
            return self.rows(body["token_ids"], sampling) if is_allowed else None
        if holds_several(body):
            return list(map(self.generate, each_of(body)))
        ids = body.get("input_ids") or server.tokenizer.encode(body["text"])
        text, number, reason = server.written(
            ids, sampling["max_new_tokens"], sampling.get("stop", [])
        )
        meta = {
            "prompt_tokens": len(ids),
            "completion_tokens": number,
            "cached_tokens": 0,
            "finish_reason": {"type": reason},
        }
        if body.get("return_logprob"):
            start = body["logprob_start_len"]
            values = server.logprobs(ids)
            values[start] = None
            meta["cached_tokens"] = start
            entries = [[values[n], ids[n], None] for n in range(start, len(ids))]
            meta["input_token_logprobs"] = entries
        return {"text": text, "meta_info": meta}

    def completions(self, body):
        server = self.server
        ids = body["prompt"]
        number = body["max_tokens"]
        assert number >= 1
        if body["model"] != "served" or len(ids) + number > server.window:
            return None
        text, number, reason = server.written(ids, number, body.get("stop", []))
        choice = {"index": 0, "text": text, "finish_reason": reason, "prompt_logprobs": None}
        if body.get("prompt_logprobs") is not None:
            _, *values = server.logprobs(ids)
            entries = [
                {str(token): {"logprob": value, "rank": 1, "decoded_token": "?"}}
                for token, value in zip(ids[1:], values, strict=True)
            ]
            choice["prompt_logprobs"] = [None, *entries]
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
