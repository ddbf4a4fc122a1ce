"""The body of `POST /model/{id}/converse-stream`."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from bot.llm.dialect import Asked, Parameter
from bot.llm.dialects.alternating import NOTHING_SAID, declared, system_text, turns
from bot.llm.dialects.bodies import dumped
from bot.llm.dialects.kept import Block
from bot.llm.images import base64_of
from conversation_store.models import Image
from tools.schema import Declarations, Described, to_anthropic

PROBE: Final = (
    b'{"messages":[{"role":"user","content":[{"text":"Hi"}]}],"inferenceConfig":{"maxTokens":1}}'
)
"""The least that a model can be asked."""

_AT_THE_TOP: Final = ("type", "properties", "required")


def request_body(of: str, asked: Asked, declarations: Declarations) -> bytes:
    """Return the JSON of a request to converse.

    It sets no limit of tokens: the models' own limits differ, and each refuses one that is larger.
    That a tool may not be called cannot be said, so none is offered then; those that were called
    before have to be declared all the same.

    Args:
        of: the model as the owner of what is kept of its answers.
        asked: the request.
        declarations: of tools.
    """
    request = asked.request
    body: dict[str, Any] = {"messages": turns(request.messages, _Blocks(), of)}
    if text := system_text(request.messages):
        body["system"] = [{"text": text}]
    if tools := declared(request.tools if request.may_call else (), request.messages):
        body["toolConfig"] = {"tools": declarations.of(tools)}
    return dumped(body)


def parameters(asked: Asked) -> Collection[Parameter]:
    """Return what a request has that an endpoint may refuse."""
    return {Parameter.STREAM} - asked.omitted


def declaration(tool: Described) -> dict[str, Any]:
    """Return an entry of `tools`.

    Amazon's Nova takes nothing else than `_AT_THE_TOP` at the top of a schema; for the rest
    Bedrock refuses no more than Anthropic does.
    """
    whole = to_anthropic(tool)["input_schema"]
    schema = {"properties": {}, **{key: whole[key] for key in _AT_THE_TOP if key in whole}}
    described = {"name": tool.name, "description": tool.description or tool.name}
    return {"toolSpec": {**described, "inputSchema": {"json": schema}}}


class _Blocks:
    """Implements `bot.llm.dialects.alternating.Blocks`."""

    def text(self, text: str) -> Block:
        return {"text": text}

    def image(self, image: Image) -> Block:
        format_ = image.content_type.partition("/")[2]
        return {"image": {"format": format_, "source": {"bytes": base64_of(image)}}}

    def call(self, id_: str, name: str, arguments: dict[str, object]) -> Block:
        return {"toolUse": {"toolUseId": id_, "name": name, "input": arguments}}

    def result(self, id_: str, text: str, images: Sequence[Image]) -> Block:
        said = self.text(text if text.strip() else NOTHING_SAID)
        content = [said, *map(self.image, images)]
        return {"toolResult": {"toolUseId": id_, "content": content}}
