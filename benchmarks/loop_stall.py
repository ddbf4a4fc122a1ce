"""How long does one text block the event loop?

Every function that reads people's or models' words on the loop gets texts of a grammar. The measure
is the processor time of the loop's thread from one turn of the loop to the next, so the load of
other programs does not change it.
"""

import asyncio
import gc
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import cycle, product
from typing import Any, Final
from zoneinfo import ZoneInfo

from mcp.types import CallToolResult, TextContent

from benchmarks.report import Figure
from benchmarks.rough_texts import FLOODING, SIZE_BYTES, flood, rough_text
from bot.chat.handler import asked_again
from bot.chat.history import Past
from bot.chat.meaning import chosen, meaning_of
from bot.chat.media import name_of, title_of_file, type_of_file
from bot.chat.pictures import picture_for
from bot.chat.plan import without_command
from bot.chat.prompt import Prompt
from bot.chat.question_messages import question_messages
from bot.chat.quotes import own_words, reply
from bot.chat.rendering import SHORT_CHARACTERS, SHORT_STOPS, Renderer, open_renderer
from bot.chat.replies import parse_command
from bot.chat.summaries import MAX_BYTES, checked_summary
from bot.commands.questions import plan
from bot.config.llm import LlmSettings
from bot.language.catalogs import NAMES, translated
from bot.language.languages import detect
from bot.llm.answering import joined, to_last_word
from bot.llm.anthropic import Anthropic
from bot.llm.api import Answer, Api, Asked
from bot.llm.bedrock import Bedrock
from bot.llm.cleanup import ODD, cleaned, without_code, without_reasoning
from bot.llm.client import FED_AT_ONCE_BYTES
from bot.llm.errors import LlmError
from bot.llm.gemini import Gemini
from bot.llm.messages import ModelRequest
from bot.llm.models import ModelTraits
from bot.llm.ollama import Ollama
from bot.llm.openai import OpenAi
from bot.llm.refusals import error_inside_answer, refusal_from_http
from bot.signal.formatting import MAX_CHARACTERS as MAX_ANSWER
from bot.signal.formatting import MAX_MARKERS, stops_in
from bot.signal.frames import (
    MAX_LIST,
    Account,
    parse_frame,
    sanitize_file_name,
    sanitize_name,
    sanitize_quote,
)
from bot.signal.json_rpc import LineBuffer
from bot.signal.markdown_rules import with_formulas
from bot.signal.rest_requests import error_from_answer, escaped_markup
from conversation_store.models import (
    ChatId,
    Message,
    ModelState,
    OverheardMessage,
    ReceivedFile,
    ReceivedMessage,
    ReceivedQuote,
    Role,
    StyleRange,
    TextStyle,
    ToolCall,
)
from conversation_store.words import words_of
from tests.fakes.signal_frames import data_message, edit_frame, message_frame
from tests.fakes.signal_side import ADA, BOT
from tools import executor
from tools.base import (
    Caller,
    Consent,
    Heard,
    Tool,
    ToolError,
    ToolFile,
    holds_marked,
    mark,
    marked_by,
    presentable,
    trim,
)
from tools.calculator.arithmetic import MAX_CHARACTERS
from tools.calculator.tool import conversion
from tools.commands import MAX_COMMAND_CHARACTERS, consent_to
from tools.dates import (
    MAX_CHANGE_CHARACTERS,
    MAX_DATE_CHARACTERS,
    MAX_ZONE_CHARACTERS,
    answer,
    change,
    find_zone,
)
from tools.display import shown, visible
from tools.mcp.listing import parsed
from tools.mcp.results import output_of
from tools.question import MAX_QUESTION_BYTES, question
from tools.registry import Registry
from tools.reminders import MAX_RULE_CHARACTERS, parse_rule
from tools.schema import parameters_of, parse_object, plain, tool_from
from tools.search_chat import MAX_FOUND, MAX_QUERY_CHARACTERS, Found, line
from tools.settings import MAX_RESULT_BYTES
from tools.web.fetch import part_of
from tools.web.guard import MAX_URL, checked
from tools.web.search import SearchResult, numbered

MAX_MS: Final = 50.0
TEXTS: Final = 150
QUICK_TEXTS: Final = 3
QUICK_FLOODS: Final = " \n"
TRIES: Final = 3
"""The least of so many counts, because other programs cost processor time, too."""
CLEAR_MS: Final = 10.0
"""Below this, a stall is far from the bound and is not measured again."""
RENDERING: Final = "rendering"
SHORT_RENDERING: Final = "rendering of a short answer"
PIECE_CHARACTERS: Final = 5
NOW: Final = datetime(2026, 11, 22, 12, tzinfo=UTC)
Reads = Iterator[Callable[[], object]]
"""Steps of the loop, each of which is done in one go."""

GROUP: Final = ChatId.parse("group:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
SCHEMA: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "list": {"type": "array"}},
    "required": ["list"],
}


@dataclass(slots=True)
class Longest:
    """Longest stall of the loop, in seconds of processor time."""

    seconds: float = 0.0


@asynccontextmanager
async def stalls() -> AsyncIterator[Longest]:
    """Measure inside how long the loop's thread works between two of the loop's turns.

    Garbage collection is off: its time depends on the whole process, not on a text.
    """
    longest = Longest()

    async def watch() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest.seconds, before = max(longest.seconds, now - before), now

    gc.disable()
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield longest
    finally:
        await asyncio.sleep(0)
        watching.cancel()
        gc.enable()


async def send_somewhere(text: str, count: int = 1) -> str:
    """Send a text somewhere.

    Args:
        text: what to send.
        count: how often.
    """
    return text * count


async def open_page(url: str) -> str:
    """Open a page.

    Args:
        url: which.
    """
    return url


SENDING: Final[Tool] = tool_from(send_somewhere, side_effects=True)
OPENING: Final[Tool] = tool_from(open_page, address="url")
PROMPT: Final = Prompt(Registry())
TRAITS: Final = ModelTraits(32_000)
ENDPOINT: Final = LlmSettings(base_url="http://127.0.0.1", model="model")
OPENAI: Final = OpenAi(ENDPOINT)
APIS: Final[Sequence[Api]] = (
    OPENAI,
    Anthropic(ENDPOINT),
    Bedrock(ENDPOINT),
    Gemini(ENDPOINT),
    Ollama(ENDPOINT),
)
PIECES: Final = (
    (OPENAI, '{"choices":[{"delta":{"content":%s}}]}'),
    (OPENAI, '{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f","arguments":%s}}]}}]}'),
    (
        APIS[1],
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":%s}}',
    ),
    (APIS[3], '{"candidates":[{"content":{"parts":[{"text":%s}]}}]}'),
    (APIS[4], '{"message":{"content":%s}}'),
)
"""Events of the APIs, each with a place for words."""


ADA_CHAT: Final = ChatId.direct(ADA.aci)


def _received(text: str, chat: ChatId = ADA_CHAT) -> ReceivedMessage:
    quote = ReceivedQuote(timestamp=1, author=ADA.aci, by_bot=False, text=text)
    return ReceivedMessage(
        BOT.number, ADA.aci, 1, chat, text, received_at=1, author_name=text[:512], quote=quote
    )


def _frames(text: str) -> Reads:
    """Message as it is delivered, with the text in every possible place."""
    mentions = [{"start": at, "length": 1, "name": text[:128]} for at in range(0, 2 * MAX_LIST, 2)]
    files = [{"id": "a", "contentType": text[:2_000], "filename": text[:2_000]}] * 32
    data = data_message(BOT, 1, text) | {
        "mentions": mentions,
        "attachments": files,
        "quote": {"id": 1, "authorUuid": ADA.aci, "text": text},
    }
    edit = edit_frame(BOT, ADA, 1, data_message(BOT, 1, text))
    for frame in (message_frame(BOT, ADA, data), edit):
        yield partial(_line, json.dumps(frame).encode())
    yield partial(_line, text.replace("\n", " ").encode(errors="replace"))


def _line(line: bytes) -> None:
    for one in LineBuffer(2**25).feed(line + b"\n"):
        with suppress(ValueError, RecursionError):
            parse_frame(json.loads(one or b""), BOT)


def _addresses(text: str) -> Reads:
    """Arguments of the built-in tools, within their bounds."""
    yield partial(_parsed, checked, f"https://{text}"[:MAX_URL])
    yield partial(_parsed, checked, f"https://{''.join(filter(str.isalnum, text))}"[:MAX_URL])
    yield partial(_parsed, _date, text[:MAX_DATE_CHARACTERS])
    yield partial(_parsed, change, text[:MAX_CHANGE_CHARACTERS])
    yield partial(conversion, text[:MAX_CHARACTERS])
    yield partial(conversion, f"1 {text}"[:MAX_CHARACTERS])
    yield partial(_parsed, _zone, text[:MAX_ZONE_CHARACTERS])
    yield partial(_parsed, _rule, text[:MAX_RULE_CHARACTERS])


def _date(text: str) -> str:
    return answer(text, "", text, "UTC", datetime.now(UTC))


def _zone(text: str) -> object:
    return find_zone(text, datetime.now(UTC))


def _rule(text: str) -> object:
    return parse_rule(text, ZoneInfo("UTC"))


def _names(text: str) -> Reads:
    yield partial(sanitize_name, text)
    yield partial(sanitize_file_name, text)
    yield partial(sanitize_quote, text, (), Account("+4915200000001"))
    yield partial(with_formulas, text[:MAX_ANSWER])

    file = ReceivedFile(id="a", name=text, content_type="image/png", size=1)
    for read in (name_of, type_of_file, title_of_file):
        yield partial(read, file)
    yield partial(presentable, [ToolFile(text, "text/plain", b"")])


def _commands(text: str) -> Reads:
    """Read a text as a command, as the argument of one, and as an answer to a question."""
    for words in (text, f"!plan{text}", f"!plan {text}"):
        yield partial(parse_command, words, {"plan": plan})
        yield partial(without_command, [_received(words)])
    yield partial(meaning_of, text)
    yield partial(chosen, text, [text[:100]] * 10, multiple=True)


def _languages(text: str) -> Reads:
    """Detect a person's language, and translate sentences of the bot with foreign words in them."""
    yield partial(detect, text)
    for sentence in (text, f"Run this? {text}"):
        for language in NAMES:
            yield partial(translated, sentence, language)


def _quoted(text: str) -> Reads:
    for author in (ADA.aci, "", BOT.aci):
        quote = ReceivedQuote(timestamp=1, author=author, by_bot=not author, text=text)
        yield partial(reply, _received(text), quote)
    yield partial(own_words, text)
    call = ToolCall("1", "send", text)
    yield partial(asked_again, [Message(Role.USER, text), Message(Role.ASSISTANT, "", (call,))])


def _cleaned(text: str) -> Reads:
    """Remove reasoning and markup from an answer, and join its continuation to it."""
    for read in (ODD.search, without_reasoning, without_code, to_last_word):
        yield partial(read, text)
    for is_prompted in (False, True):
        for before in ("", "<think>", '<tool_call>{"name": "open", "arguments": {'):
            yield partial(cleaned, before + text, ("send", "open"), prompted=is_prompted)
    yield partial(joined, text, text)
    yield partial(joined, text, text[: len(text) // 2])


def _asked(text: str) -> Reads:
    """Messages of one person, of several, and overheard ones."""
    yield partial(PROMPT.user_content, [_received(text)], TRAITS)
    yield partial(PROMPT.user_content, [_received(text, GROUP)], TRAITS)
    heard = [OverheardMessage(1, text[:512], line, 1) for line in text.split("\n")[:50]]
    pieces = [_received(piece) for piece in _pieces(text, 500)]
    yield partial(PROMPT.user_content, pieces, TRAITS, overheard=heard)


def _remembered(text: str) -> Reads:
    """Turns of one character, as many as fit; the oldest are left out for the running turn."""
    said = f"[{NOW:%Y-%m-%d %H:%M} UTC] "
    room = PROMPT.history_bytes(NOW, TRAITS, ()) // len(said)
    turns = tuple(
        (Message(Role.USER, said + character), Message(Role.ASSISTANT, character))
        for character in text[:room]
    )
    yield partial(PROMPT.build, NOW, TRAITS, Past(turns), [Message(Role.USER, text)])


def _sent(text: str) -> Reads:
    call = ToolCall("1", "send", text)
    messages = [Message(Role.USER, text), Message(Role.ASSISTANT, text, (call,))]
    messages.append(Message(Role.TOOL, text, (), "1"))
    for api in APIS:
        yield partial(api.put, Asked(ModelRequest(messages)))
        state = ModelState(api.of, json.dumps([{"text": text}]))
        kept = [messages[0], replace(messages[1], state=state), messages[2]]
        yield partial(api.put, Asked(ModelRequest(kept)))


def _streamed(text: str) -> Reads:
    """Answers in small pieces, as many as are read in one go."""
    for api, event in PIECES:
        pieces = (json.dumps(piece) for piece in _pieces(text, PIECE_CHARACTERS))
        before = "" if api is APIS[4] else "data: "
        events = "".join(f"{before}{event % piece}\n\n" for piece in pieces).encode()
        yield partial(_read, api.reader(), events[:FED_AT_ONCE_BYTES])
    encoded = text.encode(errors="replace")
    for api in APIS:
        yield partial(_read, api.reader(), encoded)
        yield partial(_read, api.reader(), b"data:" + encoded + b"\n\n")


def _whole(text: str) -> Reads:
    message = {"content": text, "tool_calls": [{"function": {"name": text, "arguments": text}}]}
    for body in (json.dumps({"choices": [{"message": message}]}), text):
        yield partial(_read, OPENAI.reader(), body.encode(errors="replace"))


def _read(reader: Answer, data: bytes) -> None:
    with suppress(LlmError):
        reader.feed(data)
        reader.completion()


def _refused(text: str) -> Reads:
    for body in (json.dumps({"error": {"message": text, "code": text}}), text):
        yield partial(refusal_from_http, 400, body.encode(errors="replace"))
        yield partial(error_from_answer, 400, body)
        yield partial(error_from_answer, 429, body)
    yield partial(error_inside_answer, text)


def _called(text: str) -> Reads:
    """Arguments of tools: JSON of every shape, and other texts."""
    held_against = partial(parsed, parameters_of(plain(SCHEMA) or {}))
    objects = (
        {"text": text},
        {"list": list(text[:10_000])},
        {text: 1},
        {f"{place}{character}": 1 for place, character in enumerate(text[:5_000])},
        {"text": "a", "url": f"https://{text[:2_000]}"},
    )
    for sent in (text, *map(json.dumps, objects)):
        for parse in (parse_object, held_against, SENDING.parse, OPENING.parse):
            yield partial(_parsed, parse, sent[:SIZE_BYTES])


def _parsed(parse: Callable[[Any], object], sent: object) -> None:
    with suppress(ToolError, ValueError):
        parse(sent)


def _questioned(text: str) -> Reads:
    messages = [
        SENDING.parse(json.dumps({"text": text[:most]}))
        for most in (SIZE_BYTES, MAX_QUESTION_BYTES, MAX_QUESTION_BYTES // 4)
    ]
    address = OPENING.parse(json.dumps({"url": text[:2_000] or "a"}))
    heard = Heard(people=[text, text], results=[mark(text, "web_fetch", SIZE_BYTES), text])
    for message in messages:
        yield partial(_parsed, partial(question, SENDING), message)
    yield partial(_parsed, partial(question, OPENING), address)
    yield partial(executor.needs_yes, OPENING, address, Caller("ada"), heard)
    yield partial(executor.may_run_unasked, Consent(covers=("run_command",)), heard)
    yield partial(consent_to, {"command": text[:MAX_COMMAND_CHARACTERS]}, "ask")
    yield partial(question_messages, "send", text, "Yes?")
    yield partial(shown, text[:MAX_QUESTION_BYTES])
    yield partial(visible, text[:MAX_QUESTION_BYTES])


def _found(text: str) -> Reads:
    """Thirty long messages that a search has found, a table, and a summary."""
    messages = [Found("Ada", text, 1)] * MAX_FOUND

    def show() -> None:
        for one in messages:
            line(one, text[:MAX_QUERY_CHARACTERS], "UTC", bot="You")

    yield show
    yield partial(words_of, text)
    yield partial(picture_for, text, ())
    yield partial(checked_summary, text, MAX_BYTES, f"{text}more")


def _results(text: str) -> Reads:
    yield partial(trim, text, MAX_RESULT_BYTES)
    yield partial(mark, text, "web_search", MAX_RESULT_BYTES)
    for result in (text, mark(text, "web_search", SIZE_BYTES)):
        yield partial(marked_by, result)
        yield partial(holds_marked, result)
    yield partial(part_of, text.encode(errors="replace").decode(), 0, MAX_RESULT_BYTES)
    yield partial(numbered, [SearchResult(text[:4_000], "https://a.b", text[:4_000])] * 20, 20)
    blocks = [TextContent(type="text", text=piece) for piece in _pieces(text, 1_000)]
    structured = {"text": text}
    yield partial(output_of, CallToolResult(content=[*blocks], structured_content=structured))


def _marked_up(text: str) -> Reads:
    """Styles as signal-cli-rest-api wants them, of one message that cannot be split."""
    styles = [
        StyleRange(place, length, style)
        for place, (style, length) in zip(
            range(0, len(text), 3), cycle(product(TextStyle, (1, 2, 7))), strict=False
        )
    ]
    yield partial(escaped_markup, text, ())
    yield partial(escaped_markup, text, styles[:MAX_MARKERS])


def _pieces(text: str, size: int) -> Sequence[str]:
    return [text[place : place + size] for place in range(0, len(text), size)]


READERS: Final[Mapping[str, Callable[[str], Reads]]] = {
    "a message with quote, mentions, files": _frames,
    "names, quotes, file names": _names,
    "commands and answers to questions": _commands,
    "languages": _languages,
    "quotes and repeated questions": _quoted,
    "markup in an answer": _cleaned,
    "what the model is asked": _asked,
    "a history of very short turns": _remembered,
    "a request to the model": _sent,
    "an answer in small pieces": _streamed,
    "an answer in one piece": _whole,
    "an endpoint's or a gateway's error": _refused,
    "arguments of a tool": _called,
    "addresses, places, expressions": _addresses,
    "questions to a person": _questioned,
    "results of tools": _results,
    "what was found, a table, a summary": _found,
    "markup for signal-cli-rest-api": _marked_up,
}
"""Functions that read texts of people or models on the event loop."""


def texts(numbers: Iterable[int], flooding: Iterable[str] = FLOODING) -> Iterator[str]:
    """Yield the texts of some numbers, then one flood of each character."""
    yield from map(rough_text, numbers)
    yield from map(flood, flooding)


async def longest_stalls(texts: Iterable[str]) -> dict[str, float]:
    """Return the longest stall of each reader under some texts, in ms."""
    longest = dict.fromkeys((*READERS, RENDERING, SHORT_RENDERING), 0.0)
    async with open_renderer() as renderer:
        for text in texts:
            for name, reads in READERS.items():
                for read in reads(text):
                    longest[name] = max(longest[name], _taken_by(read))
            for name, answer in ((RENDERING, text), (SHORT_RENDERING, short(text))):
                longest[name] = max(longest[name], await _kept_by(renderer, answer))
    return longest


def _taken_by(read: Callable[[], object]) -> float:
    """Return how long a step of the loop takes, in ms: the least of a few tries."""
    found = math.inf
    for _ in range(TRIES):
        began = time.thread_time()
        read()
        found = min(found, (time.thread_time() - began) * 1000)
        if found < CLEAR_MS:
            break
    return found


async def _kept_by(renderer: Renderer, answer: str) -> float:
    """Return the longest that the rendering of an answer keeps the loop, in ms."""
    found = []
    for _ in range(TRIES):
        async with stalls() as longest:
            await renderer.messages(answer, ())
        found.append(longest.seconds * 1000)
        if found[-1] < CLEAR_MS:
            break
    return min(found)


def short(text: str) -> str:
    """Return the longest beginning of a text that is rendered on the loop."""
    least, most = 0, SHORT_CHARACTERS
    while least < most:
        middle = (least + most + 1) // 2
        fits = stops_in(text[:middle]) <= SHORT_STOPS
        least, most = (middle, most) if fits else (least, middle - 1)
    return text[:least]


async def measure(*, quick: bool) -> Sequence[Figure]:
    """Return the longest stall of each kind of reading."""
    found = await longest_stalls(
        texts(range(QUICK_TEXTS), QUICK_FLOODS) if quick else texts(range(TEXTS))
    )
    return [
        Figure(f"longest stall, {name}", milliseconds, "ms", at_most=MAX_MS)
        for name, milliseconds in found.items()
    ]
