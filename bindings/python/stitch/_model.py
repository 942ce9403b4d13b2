# SPDX-License-Identifier: MIT
"""Language models: OpenAI-compatible endpoints, recordings, files exchanged with another program, functions of the
host."""

from __future__ import annotations

from ctypes import byref, c_int, c_void_p, string_at
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Sequence, Union

from . import _declarations as c
from ._core import (
    OUT,
    Cancel,
    Cancelling,
    Handle,
    Ref,
    Uses,
    callback,
    decode,
    encode,
    encode_path,
    enum_value,
    error_from,
    make,
    milliseconds,
    need,
    void_callback,
)
from ._errors import InvalidError, StitchError
from ._library import lib
from ._context import Budget, Context, Path

MessageRole = c.stitch_message_role
# on_token(request, reasoning, text): reasoning 0: the answer, 1: the thinking before it, -1: what came so far is void.
TokenCallback = Callable[[int, int, str], Any]


@dataclass(frozen=True)
class Message:
    role: Union[MessageRole, str]
    content: str


@dataclass(frozen=True)
class Request:
    """What is asked. temperature None and max_tokens 0: the model's default; timeout in seconds, retries included.

    label        what the request is for ("plan", "code:draft"); recordings are keyed by it
    fingerprint  identifies what the prompt says apart from measured figures; None: a hash of the messages
    json_schema  JSON Schema text for structured output
    """

    messages: Sequence[Message]
    label: str = ""
    fingerprint: Optional[str] = None
    json_schema: Optional[str] = None
    max_tokens: int = 0
    temperature: Optional[float] = None
    timeout: Optional[float] = None


@dataclass(frozen=True)
class Reply:
    """What a model answered. Token counts: -1: unknown; cost 0: unknown prices."""

    text: str
    reasoning: str = ""
    tokens_in: int = -1
    tokens_out: int = -1
    finish: str = ""
    notice: str = ""
    model: str = ""
    cost: float = 0.0
    milliseconds: float = 0.0


HostModel = Callable[[Request], Union[str, Reply]]


def _take_reply(reply: c_void_p) -> Reply:
    """Copies a reply and frees it."""
    try:
        text = [
            decode(getattr(lib, "stitch_reply_" + name)(reply))
            for name in ("text", "reasoning", "finish", "notice", "model")
        ]
        return Reply(
            text[0],
            text[1],
            lib.stitch_reply_tokens_in(reply),
            lib.stitch_reply_tokens_out(reply),
            text[2],
            text[3],
            text[4],
            lib.stitch_reply_cost(reply),
            lib.stitch_reply_milliseconds(reply),
        )
    finally:
        lib.stitch_reply_free(reply)


def token_callback(function: Optional[TokenCallback]) -> Any:
    if function is None:
        return c.stitch_token_fn()
    notify = function
    return void_callback(
        c.stitch_token_fn,
        lambda request, reasoning, text, length, _: notify(request, reasoning, decode(string_at(text, length))),
    )


def _fill(value: Any, request: Request, on_token: Any, token: Cancel) -> None:
    """A stitch_request of ours from a Request."""
    messages = (c.stitch_message * max(1, len(request.messages)))()
    for slot, message in zip(messages, request.messages):
        slot.role, slot.content = enum_value(MessageRole, message.role, "role"), encode(message.content, "content")
    value.messages, value.message_count = messages, len(request.messages)
    value.label, value.fingerprint = encode(request.label, "label"), encode(request.fingerprint, "fingerprint")
    value.json_schema, value.max_tokens = encode(request.json_schema, "json_schema"), request.max_tokens
    if request.temperature is not None:
        value.temperature = request.temperature
    value.on_token, value.cancel, value.timeout_ms = on_token, token.address, milliseconds(request.timeout)


def _host_callback(function: HostModel) -> Any:
    def answer(request_at: Any, reply: int, _: Any) -> int:
        r = request_at.contents
        messages = [Message(MessageRole(m.role), decode(m.content)) for m in r.messages[: r.message_count]]
        request = Request(
            messages,
            decode(r.label),
            decode(r.fingerprint) if r.fingerprint else None,
            decode(r.json_schema) if r.json_schema else None,
            r.max_tokens,
            None if r.temperature < 0 else r.temperature,
            r.timeout_ms / 1000 if r.timeout_ms else None,
        )
        answered = function(request)
        given = Reply(answered) if isinstance(answered, str) else answered
        if not isinstance(given, Reply):
            raise TypeError(f"a model must return a str or a Reply, not {type(given).__name__}")
        return int(
            lib.stitch_reply_set(
                reply,
                encode(given.text, "reply"),
                encode(given.reasoning) if given.reasoning else None,
                given.tokens_in,
                given.tokens_out,
            )
        )

    return callback(c.stitch_model_fn, answer)


class Model(Handle):
    """A source of replies. One thread at a time; complete_many() runs requests at once by itself. Made by open(),
    http(), host(), replay(), record() or relay()."""

    _free = "stitch_model_free"
    _ctx: Context
    _budget: Optional[Ref] = None

    def __init__(self) -> None:
        raise TypeError("use Model.open(), http(), host(), replay(), record() or relay()")

    @classmethod
    def _of(cls, ctx: Context, function: Any, *args: Any, keep: Sequence[Any] = ()) -> "Model":
        self = cls.__new__(cls)
        self._adopt(ctx, function, *args, keep=keep)
        self._ctx = ctx
        return self

    @classmethod
    def open(cls, ctx: Context, spec: str) -> "Model":
        """ "https://host/v1#MODEL", "replay:FILE", "replay-strict:FILE", "relay:FOLDER", "record:FILE,SPEC"."""
        return cls._of(ctx, lib.stitch_model_open, encode(spec, "spec"), OUT)

    @classmethod
    def http(cls, ctx: Context, base_url: str, model: str, **options: Any) -> "Model":
        """An OpenAI-compatible endpoint. Options as in stitch_http_options of stitch/model.h: api_key, api_key_env,
        stream, structured, max_retries, max_concurrent, connect_timeout_ms, idle_timeout_ms, total_timeout_ms,
        max_tokens, max_reply_bytes, temperature, extra_body (JSON text), price_in, price_out."""
        value = make(c.stitch_http_options)
        for name, option in dict(options, base_url=base_url, model=model).items():
            if name == "struct_size" or not hasattr(value, name):
                raise TypeError(f"there is no option '{name}'")
            setattr(value, name, encode(option, name) if isinstance(option, str) else option)
        return cls._of(ctx, lib.stitch_model_new_http, byref(value), OUT)

    @classmethod
    def host(cls, ctx: Context, function: HostModel) -> "Model":
        """A function of yours: function(request) returns the text of the answer or a Reply. What it raises comes out of
        the call that asked. Called in the thread that asks, for one request after the other."""
        if not callable(function):
            raise TypeError(f"function must be callable, not a {type(function).__name__}")
        wrapped = _host_callback(function)
        return cls._of(ctx, lib.stitch_model_new_host, wrapped, None, OUT, keep=[wrapped])

    @classmethod
    def replay(cls, ctx: Context, path: Path, strict: bool = False) -> "Model":
        """Answers from a recording (docs/recordings.md). strict: a prompt that has changed is a ReplayError."""
        return cls._of(ctx, lib.stitch_model_new_replay, encode_path(path), int(strict), OUT)

    @classmethod
    def record(cls, ctx: Context, inner: "Model", path: Path) -> "Model":
        """Passes requests on to `inner`, which is the new model's from then on, and appends every exchange to the
        file."""
        need(Model, inner=inner)
        with Uses(inner) as (address,):
            self = cls._of(ctx, lib.stitch_model_new_record, address, encode_path(path), OUT)
            assert self._ref is not None
            inner._hand_over(self._ref)
        return self

    @classmethod
    def relay(cls, ctx: Context, folder: Path) -> "Model":
        """Exchanges files with whatever answers (docs/recordings.md)."""
        return cls._of(ctx, lib.stitch_model_new_relay, encode_path(folder), OUT)

    def set_budget(self, budget: Optional[Budget]) -> None:
        """A spent budget makes further requests fail with BudgetError. None: no limit again."""
        if budget is not None:
            need(Budget, budget=budget)
        with Uses(self, budget) as (address, budget_at):
            lib.stitch_model_set_budget(address, budget_at)
            assert self._ref is not None
            new = None if budget is None else budget._ref
            if new is not None:
                self._ref.add_parent(new)
            if self._budget is not None:
                self._ref.remove_parent(self._budget)
            self._budget = new

    def complete(
        self, request: Union[Request, str], *, on_token: Optional[TokenCallback] = None, cancel: Optional[Cancel] = None
    ) -> Reply:
        """Blocks until the reply is complete. A str is one user message. Ctrl-C ends the call."""
        request = Request([Message(MessageRole.USER, request)]) if isinstance(request, str) else request
        value, reply = make(c.stitch_request), c_void_p()
        with Cancelling(cancel) as token:
            _fill(value, request, token_callback(on_token), token)
            try:
                self._call(lib.stitch_model_complete, byref(value), byref(reply), trigger=token.trigger)
                taken, reply = reply, c_void_p()
                return _take_reply(taken)
            finally:
                lib.stitch_reply_free(reply)

    def complete_many(
        self, requests: Sequence[Request], *, on_token: Optional[TokenCallback] = None, cancel: Optional[Cancel] = None
    ) -> List[Union[Reply, StitchError]]:
        """All requests at once: a Reply or the error of each."""
        count = len(requests)
        if count == 0:
            raise InvalidError("complete_many() needs requests")
        values, statuses = (c.stitch_request * count)(), (c_int * count)()
        replies, errs = (c_void_p * count)(), (c_void_p * count)()
        function = token_callback(on_token)
        with Cancelling(cancel) as token:
            for i, request in enumerate(requests):
                values[i] = make(c.stitch_request)
                _fill(values[i], request, function, token)

            def complete(model: int, *_: Any) -> int:
                status = lib.stitch_model_complete_many(model, values, count, statuses, replies, errs)
                return 0 if any(statuses) or any(replies) else int(status)

            try:
                self._call(complete, trigger=token.trigger)
                out: List[Union[Reply, StitchError]] = []
                for i in range(count):
                    if statuses[i] != 0:
                        err, errs[i] = c_void_p(errs[i]), None
                        out.append(error_from(err, statuses[i]))
                    else:
                        reply, replies[i] = c_void_p(replies[i]), None
                        out.append(_take_reply(reply))
                return out
            finally:
                for i in range(count):
                    lib.stitch_reply_free(replies[i])
                    lib.stitch_error_free(errs[i])

    def close(self) -> None:
        """Releases the model; a context that has it in a role forgets it first."""
        if self._ref is not None and not self._ctx.closed:
            self._ctx._forget_model(self)
        super().close()
