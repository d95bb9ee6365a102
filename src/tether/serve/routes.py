"""The endpoints: one line each, from which the application and its OpenAPI document are made."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tether.serve import messages
from tether.serve.tokens import Role

EVERYBODY = frozenset(Role)
CONTROL = frozenset({Role.CONTROL})
OPERATOR = frozenset({Role.OPERATOR})
EITHER = CONTROL | OPERATOR
EPISODE = "/v1/plants/{plant}/episodes/{episode}"


class Endpoint(NamedTuple):
    """One of them."""

    call: str
    """What it is called in the metrics, and which method of the application answers."""
    method: str
    path: str
    roles: frozenset[Role] | None
    """Who may call it; None for everybody, without a token."""
    about: str
    body: Any = None
    """Type of what is sent."""
    answer: Any = None
    """Type of what is answered; None for what is not JSON."""


ENDPOINTS = (
    Endpoint(
        "act", "POST", f"{EPISODE}/act", CONTROL, "Ask what to play.", messages.Act, messages.AnswerBody
    ),
    Endpoint(
        "observe",
        "POST",
        f"{EPISODE}/observe",
        CONTROL,
        "Say what came.",
        messages.Observe,
        messages.ReceiptBody,
    ),
    Endpoint(
        "reset",
        "POST",
        f"{EPISODE}/reset",
        CONTROL,
        "Begin an episode.",
        messages.Reset,
        messages.ReceiptBody,
    ),
    Endpoint(
        "report", "POST", f"{EPISODE}/report", CONTROL, "A late cost.", messages.Report, messages.ReceiptBody
    ),
    Endpoint(
        "end", "POST", f"{EPISODE}/end", EITHER, "End an episode.", messages.Reason, messages.ReceiptBody
    ),
    Endpoint(
        "batch", "POST", "/v1/batch", CONTROL, "Several calls at once.", messages.Batch, messages.BatchAnswers
    ),
    Endpoint(
        "prior_now",
        "POST",
        "/v1/plants/{plant}/prior-now",
        OPERATOR,
        "From the next decision on the prior plays on this plant.",
        messages.Reason,
        messages.ControlBody,
    ),
    Endpoint(
        "resume",
        "POST",
        "/v1/plants/{plant}/resume",
        OPERATOR,
        "The learner may play again on this plant.",
        messages.Reason,
        messages.ControlBody,
    ),
    Endpoint(
        "prior_now_all",
        "POST",
        "/v1/prior-now",
        OPERATOR,
        "From the next decision on the prior plays on every plant.",
        messages.Reason,
        messages.ControlBody,
    ),
    Endpoint(
        "resume_all",
        "POST",
        "/v1/resume",
        OPERATOR,
        "The learners may play again on every plant.",
        messages.Reason,
        messages.ControlBody,
    ),
    Endpoint(
        "status", "GET", "/v1/status", EVERYBODY, "Every plant, its episodes and last rounds.", None, dict
    ),
    Endpoint("events", "GET", "/v1/events", EVERYBODY, "The same as it changes: server-sent events."),
    Endpoint("metrics", "GET", "/metrics", EVERYBODY, "For Prometheus."),
    Endpoint("openapi", "GET", "/openapi.json", None, "This document.", None, dict),
    Endpoint("healthz", "GET", "/healthz", None, "Whether the process lives.", None, dict),
    Endpoint("readyz", "GET", "/readyz", None, "Whether it can decide: 200, or 503.", None, dict),
    Endpoint("dashboard", "GET", "/", None, "The dashboard."),
)

REFUSALS = {
    "400": "The body is not JSON of this form.",
    "401": "No token, or one that is not known.",
    "403": "The token's role or plants do not allow it.",
    "404": "There is no such plant, episode or round.",
    "409": "The round was sent before with another content; the first one stands.",
    "413": "The body is too large.",
    "415": "Content-Type must be application/json.",
    "422": "It cannot be done: out of order, too late, or the prior gave no action.",
    "429": "Too often, or too many open episodes; Retry-After says when to come again.",
    "503": "The journal cannot be written; play the backup, and send the request again.",
}
"""Status codes of what is not done, and what each means; nothing has changed then."""


def openapi(version: str) -> dict[str, Any]:
    """The OpenAPI document, from the types with which requests are decoded."""
    types = [each for end in ENDPOINTS for each in (end.body, end.answer) if each is not None]
    schemas, components = msgspec.json.schema_components(
        [*types, messages.Problem], ref_template="#/components/schemas/{name}"
    )
    schema_of = {id(each): schema for each, schema in zip([*types, messages.Problem], schemas, strict=True)}
    paths: dict[str, Any] = {}
    for end in ENDPOINTS:
        paths.setdefault(end.path, {})[end.method.lower()] = _operation(end, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tether",
            "version": version,
            "description": "Keeps whatever a learner proposes within the contract of each plant. (episode, round) "
            "makes a request idempotent: the same request gets the same answer, another content is refused.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(end: Endpoint, schema_of: dict[int, Any]) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        return {"application/json": {"schema": schema_of[id(kind)]}}

    done: dict[str, Any] = {"description": "Done."}
    if end.answer is not None:
        done["content"] = content(end.answer)
    answers: dict[str, Any] = {"200": done}
    codes = set(REFUSALS) if end.method == "POST" else {"401", "403", "429"} if end.roles else set()
    for code in sorted(codes):
        answers[code] = {"description": REFUSALS[code], "content": content(messages.Problem)}
    if end.call == "readyz":
        answers["503"] = {"description": "It cannot."}
    operation: dict[str, Any] = {
        "operationId": end.call,
        "summary": end.about,
        "parameters": [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
            }
            for name in ("plant", "episode")
            if f"{{{name}}}" in end.path
        ],
        "responses": answers,
    }
    if end.body is not None:
        operation["requestBody"] = {"required": True, "content": content(end.body)}
    if end.roles is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"For the roles {', '.join(sorted(end.roles))}."
    return operation
