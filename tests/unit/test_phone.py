"""The terminal phone: its bubbles as text, its transcript, and its window on a real pty."""

import asyncio
import codecs
import fcntl
import io
import os
import re
import signal
import struct
import termios
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.demo.bubbles import Bubble, cells, clean, render, wrap
from bot.demo.keyboard import LineEditor
from bot.demo.messenger import DemoMessenger, FromBot
from bot.demo.phone import run_phone
from bot.messaging.events import Incoming, IncomingMessage
from conversation_store.models import Attachment, StyleRange, TextStyle

BOUND_SECONDS = 5.0
NOON = 1795262400000
TIME = re.compile(r"\d\d:\d\d")


def picture(*bubbles: Bubble, columns: int = 40) -> str:
    rows = [row for one in bubbles for row in render(one, columns=columns, colour=False)]
    return "\n".join(["", *rows, ""])


# Bubbles


def test_what_i_wrote_is_at_the_right_and_the_bot_at_the_left() -> None:
    mine = Bubble(1, mine=True, text="What is 127*43?", time="22:19")
    bot = Bubble(2, mine=False, text="127*43 = 5461.", time="22:20")
    assert (
        picture(mine, bot)
        == """
                    ╭─────────────────╮
                    │ What is 127*43? │
                    ╰──── You · 22:19 ╯
╭────────────────╮
│ 127*43 = 5461. │
╰ Bot · 22:20 ───╯
"""
    )


def test_long_texts_are_broken_between_words_and_long_words_inside() -> None:
    text = f"A long line that does not fit into a bubble, and {'x' * 40}\n\n  - indented"
    assert (
        picture(Bubble(1, mine=False, text=text, time="22:19"))
        == """
╭───────────────────────────╮
│ A long line that does not │
│ fit into a bubble, and    │
│ xxxxxxxxxxxxxxxxxxxxxxxxx │
│ xxxxxxxxxxxxxxx           │
│                           │
│   - indented              │
╰ Bot · 22:19 ──────────────╯
"""
    )


def test_styles_are_the_terminals_own_and_go_on_in_the_next_row() -> None:
    styles = (StyleRange(0, 2, TextStyle.BOLD), StyleRange(3, 60, TextStyle.MONOSPACE))
    bubble = Bubble(1, mine=False, text="😀 " + "code " * 12, time="22:19", styles=styles)
    rows = render(bubble, columns=40, colour=True)
    assert "\x1b[1m😀\x1b[22m" in rows[1]
    assert all("\x1b[33mcode" in row and "\x1b[39m" in row for row in rows[1:-1])
    plain = render(bubble, columns=40, colour=False)
    assert len({cells(row) for row in plain}) == 1
    assert "\x1b" not in "".join(plain)


def test_what_the_bot_replies_to_stands_above_its_words() -> None:
    bubble = Bubble(1, mine=False, text="No.", time="22:19", quote="Is it raining\nthere?")
    assert (
        picture(bubble)
        == """
╭─────────────────╮
│ ┃ Is it raining │
│ No.             │
╰ Bot · 22:19 ────╯
"""
    )


def test_a_text_cannot_play_a_style() -> None:
    bubble = Bubble(1, mine=False, text="a󰀀b", time="22:19")
    assert render(bubble, columns=40, colour=True)[1].count("\x1b") == 4  # its frame alone


def test_wide_characters_take_two_cells() -> None:
    bubble = Bubble(
        1, mine=False, text="🔧 日本語のテキスト e\u0301te\u0301", time="22:19", edited=True
    )
    rows = render(bubble, columns=40, colour=False)
    assert {cells(row) for row in rows} == {27}
    assert rows[-1] == "╰ Bot · 22:19 (edited) ───╯"
    assert wrap("日本語のテキスト", 5) == ["日本", "語の", "テキ", "スト"]


def test_an_emoji_is_never_cut_in_two() -> None:
    family = "👨\u200d👩\u200d👧"
    assert wrap(family * 3, 7) == [family, family, family]
    assert wrap("👍🏽👍🏽", 4) == ["👍🏽", "👍🏽"]


@pytest.mark.parametrize("columns", [1, 28, 80, 200])
@pytest.mark.parametrize("text", ["", "\n", "word " * 100, "語" * 300, "\u0301" * 10, "x" * 20_000])
def test_every_row_fits_the_window(text: str, columns: int) -> None:
    for mine, names in ((True, ()), (False, ("x" * 100, "y"))):
        files = tuple(file(name, 9) for name in names)
        bubble = Bubble(1, mine=mine, text=text, time="22:19", attachments=files)
        rows = render(bubble, columns=columns, colour=False)
        assert max(map(cells, rows)) < max(columns, 28)


def file(name: str, size: int) -> Attachment:
    return Attachment(name, "application/json", bytes(size))


def test_files_stand_below_their_bubble_with_their_sizes() -> None:
    files = (file("proof.json", 12_345), file("b.txt", 999), file("c", 1_250_000))
    bubble = Bubble(1, mine=False, text="Here it is.", time="22:19", attachments=files)
    assert (
        picture(bubble)
        == """
╭─────────────╮
│ Here it is. │
╰ Bot · 22:19 ╯
📎 proof.json (12 kB)
📎 b.txt (999 bytes)
📎 c (1.2 MB)
"""
    )


def test_a_text_cannot_steer_the_terminal() -> None:
    assert clean("a\x1b[2Jb\x9bc\ud800") == "a\ufffd[2Jb\ufffdc\ufffd"
    assert clean("left\u202eright\u2066") == "leftright"
    assert clean("one\r\ntwo\rthree\u2028four") == "one\ntwo\nthree\nfour"
    assert clean("a\tb") == "a   b"


def test_colour_changes_nothing_but_the_colour() -> None:
    bubble = Bubble(1, mine=True, text="two\nlines", time="22:19")
    coloured = render(bubble, columns=40, colour=True)
    assert coloured != render(bubble, columns=40, colour=False)
    plain = [re.sub(r"\x1b\[\d*m", "", row) for row in coloured]
    assert plain == render(bubble, columns=40, colour=False)


# Keys


def test_keys_become_lines() -> None:
    editor = LineEditor()
    assert editor.feed(b"hellp\x7fo\r") == ["hello"]
    assert editor.feed(b"one two\x17") == []
    assert editor.text == "one "
    assert editor.feed(b"\x15new\x1b[3~\x1bOP\ttext\n\nmore") == ["new text", ""]
    assert editor.text == "more"


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        (b"helo\x1b[Dl\r", "hello"),
        (b"ello\x1b[Hh\r", "hello"),
        (b"ello\x01h\x1b[F!\r", "hello!"),
        (b"one two three\x1b[1;5D\x1b[1;5D\x17\r", "two three"),
        (b"one two\x1bb\x1bb\x1bf,\r", "one, two"),
        (b"abc\x1b[D\x1b[D\x1b[3~\r", "ac"),
        (b"abc\x1b[D\x04\r", "ab"),
        (b"abc\x1b[D\x15\r", "c"),
        (b"abc\x1b[D\x0b\r", "ab"),
        ("👨‍👩‍👧e\u0301x".encode() + b"\x1b[D\x1b[D\x7f\r", "e\u0301x"),
        (b"\x1b[D\x1b[C\x7f\x1b[3~\x1b[Aa\r", "a"),
    ],
)
def test_the_cursor_moves_by_characters_and_words(keys: bytes, sent: str) -> None:
    assert LineEditor().feed(keys) == [sent]


def test_up_and_down_bring_back_what_was_sent_and_what_was_being_typed() -> None:
    editor = LineEditor()
    editor.feed(b"one\rtwo\rtwo\r \rhalf")
    for key, shown in (("A", "two"), ("A", "one"), ("A", "one"), ("B", "two"), ("B", "half")):
        editor.feed(f"\x1b[{key}".encode())
        assert (editor.text, editor.cursor) == (shown, len(shown))
    assert editor.feed(b"\x1b[A\x1b[A!\r") == ["one!"]


def test_lines_that_are_pasted_or_ended_with_alt_enter_are_one_message() -> None:
    editor = LineEditor()
    pasted = b"a list:\r\x1b[31mone\x1b[0m\n\ttwo\x04\x03"
    assert editor.feed(b"\x1b[200~" + pasted + b"\x1b[201~") == []
    assert editor.text == "a list:\none\ntwo"
    assert editor.feed(b"\x1b\rthree\r") == ["a list:\none\ntwo\nthree"]


def test_a_key_that_arrives_in_pieces_is_one_key() -> None:
    editor = LineEditor()
    for byte in b"helo\x1b[1;5D\x1b[200~>\x1b[201~\r":
        found = editor.feed(bytes([byte]))
    assert found == [">helo"]


@given(
    st.lists(
        st.sampled_from(
            [b"\x1b[D", b"\x1b[C", b"\x1b[A", b"\x7f", b"\x17", b"e\xcc\x81", b"x ", b"\r"]
        )
    )
)
def test_no_order_of_keys_leaves_the_text(keys: list[bytes]) -> None:
    editor = LineEditor()
    for key in keys:
        editor.feed(key)
        assert 0 <= editor.cursor <= len(editor.text)


def test_backspace_takes_a_whole_emoji_and_broken_utf8_becomes_visible() -> None:
    editor = LineEditor()
    family = "👨\u200d👩\u200d👧"
    for byte in f"a{family}".encode():
        editor.feed(bytes([byte]))
    assert editor.text == f"a{family}"
    editor.feed(b"\x7f")
    assert editor.text == "a"
    assert editor.feed(b"\xff\n") == ["a\N{REPLACEMENT CHARACTER}"]


def test_ctrl_d_ends_on_an_empty_line_only() -> None:
    editor = LineEditor()
    assert editor.feed(b"text\x04") == []
    assert not editor.ended
    assert editor.feed(b"\n\x04lost\n") == ["text"]
    assert editor.ended


def test_a_line_has_a_longest_length() -> None:
    editor = LineEditor()
    assert [len(line) for line in editor.feed(b"x" * 20_000 + b"\n")] == [10_000]


# Conversations


class ScriptedBot:
    """A bot that sends the next lot of its script whenever it is written to."""

    def __init__(self, *script: Sequence[FromBot]) -> None:
        self.said: list[str] = []
        self.on_typing: Callable[[bool], None] = lambda _: None
        self._script = deque(script)
        self._sent: asyncio.Queue[FromBot] = asyncio.Queue()

    async def say(self, text: str) -> int:
        self.said.append(text)
        for sent in self._script.popleft() if self._script else ():
            self.send(sent)
        return NOON + len(self.said)

    def send(self, sent: FromBot) -> None:
        self._sent.put_nowait(sent)

    async def next_sent(self, *, seconds: float) -> FromBot:
        async with asyncio.timeout(seconds):
            return await self._sent.get()


SUM = (
    FromBot(NOON + 100, "🔧 Using calculate…"),
    FromBot(NOON + 101, "🔧 Using calculate, get_weather…", replaces=NOON + 100),
    FromBot(NOON + 102, "127*43 = 5461."),
    FromBot(NOON + 103, "And a second part."),
)


def transcript(output: io.StringIO) -> str:
    """The words on the phone, without the frames."""
    rows = [row.strip(" │╭╮╰╯─") for row in output.getvalue().splitlines()]
    return "\n".join(TIME.sub("12:00", row) for row in rows if row)


async def say(side: ScriptedBot, *texts: str, answer_seconds: float = 5.0) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    code = await run_phone(
        side, say=texts, keyboard=-1, output=output, errors=errors, answer_seconds=answer_seconds
    )
    return code, transcript(output), errors.getvalue()


async def test_what_is_said_is_printed_with_all_that_comes_until_its_answer() -> None:
    side = ScriptedBot(SUM, (FromBot(NOON + 200, "You are welcome."),))
    code, printed, errors = await say(side, "What is 127*43?", "Thanks")
    assert side.said == ["What is 127*43?", "Thanks"]
    assert (code, errors) == (0, "")
    assert (
        printed
        == """\
What is 127*43?
You · 12:00
🔧 Using calculate…
Bot · 12:00
🔧 Using calculate, get_weather…
Bot · 12:00 (edited)
127*43 = 5461.
Bot · 12:00
And a second part.
Bot · 12:00
Thanks
You · 12:00
You are welcome.
Bot · 12:00"""
    )


async def test_a_file_that_comes_with_the_answer_is_named_in_the_transcript() -> None:
    answer = FromBot(NOON, "Proof attached.", attachments=(file("proof.json", 25_000),))
    _, printed, _ = await say(ScriptedBot((answer,)), "!verify my words")
    assert printed.endswith("Proof attached.\nBot · 12:00\n📎 proof.json (25 kB)")


async def test_no_answer_is_an_exit_code_and_a_plain_sentence() -> None:
    side = ScriptedBot(SUM[:2])
    code, printed, errors = await say(side, "What is 127*43?", "never sent", answer_seconds=0.05)
    assert (code, errors) == (1, "No answer came within 0.05 seconds.\n")
    assert "🔧 Using calculate, get_weather…" in printed
    assert side.said == ["What is 127*43?"]


async def test_a_reader_that_goes_away_ends_the_phone_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    with os.fdopen(writing, "w") as output:
        code = await run_phone(
            ScriptedBot(), say=["hello"], keyboard=-1, output=output, errors=errors
        )
    assert (code, errors.getvalue()) == (1, "")


async def test_an_argument_that_is_no_text_is_sent_readable() -> None:
    side = ScriptedBot((FromBot(NOON, "ok"),))
    assert (await say(side, "a\udcffb"))[0] == 0
    assert side.said == ["a?b"]


@pytest.mark.parametrize("ending", ["", "\n", "\n/quit\nnot said\n"])
async def test_piped_lines_are_said_one_after_another(ending: str) -> None:
    answer = (FromBot(NOON, "ok"),)
    side, output = ScriptedBot(answer, answer), io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write("hello\n\n  \nhow are you?" + ending)
        pipe.close()
        code = await run_phone(side, say=(), keyboard=reading, output=output, errors=output)
    assert code == 0
    assert side.said == ["hello", "how are you?"]
    assert transcript(output).count("ok") == 2


async def test_lines_may_come_from_a_file_or_from_nowhere(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("hello\n")
    for path, said in ((tmp_path / "lines", ["hello"]), (Path("/dev/null"), [])):
        side, output = ScriptedBot((FromBot(NOON, "ok"),)), io.StringIO()
        with path.open() as file:
            code = await run_phone(
                side, say=(), keyboard=file.fileno(), output=output, errors=output
            )
        assert (code, side.said) == (0, said)


async def test_the_phone_and_the_bot_talk_through_the_demo_s_messenger() -> None:
    messenger = DemoMessenger()

    async def answer(delivery: Sequence[Incoming]) -> None:
        for message in delivery:
            assert isinstance(message, IncomingMessage)
            await messenger.send(message.chat, f"{message.text} yourself!")

    output = io.StringIO()
    async with asyncio.TaskGroup() as tasks:
        bot = tasks.create_task(messenger.run(answer))
        code = await run_phone(messenger, say=["Hi"], keyboard=-1, output=output, errors=output)
        bot.cancel()
    assert code == 0
    assert transcript(output) == "Hi\nYou · 12:00\nHi yourself!\nBot · 12:00"


async def test_what_is_typed_while_delivery_is_held_waits_for_it() -> None:
    messenger, delivered = DemoMessenger(), asyncio.Queue[Incoming]()

    async def take(delivery: Sequence[Incoming]) -> None:
        for one in delivery:
            delivered.put_nowait(one)

    async with asyncio.TaskGroup() as tasks:
        await messenger.hold_receiving()
        running = tasks.create_task(messenger.run(take))
        await messenger.say("Hi")
        await messenger.stop_receiving(delivery_seconds=0.01)
        assert (messenger.undelivered, delivered.empty()) == (1, True)
        await messenger.resume_receiving()
        await messenger.stop_receiving(delivery_seconds=BOUND_SECONDS)
        assert (messenger.undelivered, delivered.qsize()) == (0, 1)
        running.cancel()


# The window


class Window:
    """A terminal emulator on the other end of a pty, with what the phone needs of ECMA-48."""

    def __init__(self, columns: int = 44, rows: int = 20) -> None:
        self.phone_end, self._our_end = os.openpty()[::-1]
        self.resize(columns, rows)
        self._rows = [""]
        self._row = self._column = 0
        self._changed = asyncio.Event()
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.phone_end, termios.TIOCSWINSZ, size)

    def type(self, keys: str) -> None:
        os.write(self._our_end, keys.encode())

    @property
    def echoes(self) -> bool:
        flags: int = termios.tcgetattr(self.phone_end)[3]
        return bool(flags & termios.ECHO)

    @property
    def text(self) -> str:
        """What is on it."""
        return "\n".join(TIME.sub("12:00", row.rstrip()) for row in self._rows).rstrip("\n")

    async def shows(self, expected: Callable[[str], bool]) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            while not expected(self.text):
                self._changed.clear()
                await self._changed.wait()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._our_end, self._read)
        try:
            yield
        finally:
            loop.remove_reader(self._our_end)
            os.close(self._our_end)

    def _read(self) -> None:
        written = self._decoder.decode(os.read(self._our_end, 65536))
        self.written += written
        for control, count, final, char in re.findall(
            r"(\x1b\[\??(\d*)([A-Za-z]))|(.)", written, re.DOTALL
        ):
            if control:
                self._control(int(count or 1), final)
            else:
                self._put(char)
        self._changed.set()

    def _control(self, count: int, final: str) -> None:
        match final:
            case "A":
                self._row -= count
            case "C":
                self._column += count
            case "J":
                del self._rows[self._row + 1 :]
                self._rows[self._row] = self._rows[self._row][: self._column]
            case "H":
                self._row = self._column = 0
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(final)

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self._column = 0
            case "\n":
                self._row += 1
                self._rows += [""] * (self._row + 1 - len(self._rows))
            case _:
                row = self._rows[self._row]
                self._rows[self._row] = row[: self._column] + char + row[self._column + 1 :]
                self._column += 1


@asynccontextmanager
async def phone_in(window: Window, side: ScriptedBot) -> AsyncIterator[asyncio.Task[int]]:
    """A phone that runs in the window until it ends."""
    with os.fdopen(window.phone_end, "w") as output:
        async with window.open(), asyncio.timeout(BOUND_SECONDS), asyncio.TaskGroup() as tasks:
            phone = tasks.create_task(
                run_phone(side, say=(), keyboard=window.phone_end, output=output, errors=output)
            )
            await window.shows(lambda text: text.startswith("> Write a message."))
            yield phone
            await asyncio.wait([phone])
            await window.shows(lambda text: "> " not in text)
            assert window.echoes


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


async def test_a_line_that_is_typed_becomes_a_bubble_and_the_progress_is_edited_in_place() -> None:
    window, side = Window(), ScriptedBot()
    async with phone_in(window, side) as phone:
        assert not window.echoes
        window.type("What is 127*43?")
        await window.shows(lambda text: text == "> What is 127*43?")
        window.type("\r")
        await window.shows(lambda text: "You · 12:00" in text and "> Write" in text)
        side.send(SUM[0])
        await window.shows(lambda text: "🔧 Using calculate…" in text)
        window.type("and")
        side.send(SUM[1])
        side.send(SUM[2])
        await window.shows(lambda text: "5461" in text and text.endswith("> and"))
        assert window.text == DISPLAYED
        window.type("\x15\x04")
        assert await phone == 0
    assert side.said == ["What is 127*43?"]


DISPLAYED = """\
                        ╭─────────────────╮
                        │ What is 127*43? │
                        ╰──── You · 12:00 ╯
╭──────────────────────╮
│ 🔧 Using calculate,  │
│ get_weather…         │
╰ Bot · 12:00 (edited) ╯
╭────────────────╮
│ 127*43 = 5461. │
╰ Bot · 12:00 ───╯
> and"""


async def test_what_stands_below_an_edited_bubble_moves_with_it() -> None:
    window, side = Window(), ScriptedBot()
    async with phone_in(window, side):
        side.send(FromBot(NOON, "first"))
        side.send(FromBot(NOON + 1, "second"))
        await window.shows(lambda text: "second" in text)
        side.send(FromBot(NOON + 2, "first,\nand longer", replaces=NOON))
        side.send(FromBot(NOON + 3, "last version", replaces=NOON + 2))
        await window.shows(lambda text: "last version" in text)
        assert "first" not in window.text
        assert window.text.index("last version") < window.text.index("second")
        assert window.text.count("╭") == 2
        window.type("/quit\r")


async def test_a_bubble_out_of_reach_is_edited_by_a_new_one_at_the_bottom() -> None:
    window, side = Window(rows=8), ScriptedBot()
    async with phone_in(window, side):
        side.send(FromBot(NOON, "scrolled away"))
        side.send(FromBot(NOON + 1, "many\nrows\nof\ntext"))
        side.send(FromBot(NOON + 2, "edited at last", replaces=NOON))
        await window.shows(lambda text: "edited at last" in text)
        assert window.text.index("rows") < window.text.index("edited at last")
        assert "scrolled away" in window.text
        window.type("\x04")


async def test_a_window_that_changed_its_width_is_not_drawn_over() -> None:
    window, side = Window(columns=44), ScriptedBot()
    async with phone_in(window, side):
        side.send(FromBot(NOON, "wide"))
        await window.shows(lambda text: "wide" in text)
        window.resize(30, 20)
        side.send(FromBot(NOON + 1, "narrow", replaces=NOON))
        side.send(FromBot(NOON + 2, "narrow again", replaces=NOON + 1))
        await window.shows(lambda text: "narrow again" in text)
        assert "wide" in window.text
        assert window.text.count("narrow") == 1
        window.type("\x04")


async def test_ctrl_c_ends_the_conversation_as_ctrl_d_does() -> None:
    window, side = Window(), ScriptedBot()
    async with phone_in(window, side) as phone:
        window.type("unfinished\x03")
        assert await phone == 0
    assert side.said == []


@pytest.mark.parametrize("columns", [24, 30])
async def test_a_long_line_shows_its_end_while_it_is_typed(columns: int) -> None:
    window, side = Window(columns=columns), ScriptedBot()
    async with phone_in(window, side):
        window.type("語" * 100 + "the end")
        await window.shows(lambda text: text.endswith("the end"))
        assert cells(window.text) < columns
        assert "\n" not in window.text
        window.type("\x15\x04")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
async def test_what_is_typed_is_seen_around_the_cursor(columns: int, rows: int) -> None:
    window, side = Window(columns=columns, rows=rows), ScriptedBot()
    async with phone_in(window, side):
        window.type(f"{'begin ' * 30}middle{' end' * 30}")
        await window.shows(lambda text: text.endswith(" end end"))
        window.type("\x1b[1;5D" * 30)
        await window.shows(lambda text: "middle end" in text)
        assert cells(window.text) < columns
        window.type("\x1b[H>")
        await window.shows(lambda text: text.startswith("> >begin begin"))
        window.type("\x1b[F\r")
        await window.shows(lambda text: "> Write" in text)
        window.type("\x04")
    [said] = side.said
    assert said.startswith(">begin")
    assert said.endswith("end end")


async def test_pasted_lines_are_one_message_and_what_was_sent_comes_back() -> None:
    window, side = Window(), ScriptedBot()
    async with phone_in(window, side):
        assert "\x1b[?2004h" in window.written
        window.type("\x1b[200~one\rtwo\x1b[201~")
        await window.shows(lambda text: text == "> one⏎two")
        window.type("\r\x1b[A")
        await window.shows(lambda text: text.endswith("> one⏎two"))
        window.type("\x1b[B\x04")
    assert "\x1b[?2004l" in window.written
    assert side.said == ["one\ntwo"]


async def test_help_says_what_can_be_done_and_is_no_message() -> None:
    window, side = Window(columns=80), ScriptedBot()
    async with phone_in(window, side):
        window.type("/help\r")
        await window.shows(lambda text: "Alt-Enter" in text and text.count("\n") > 3)
        assert max(map(len, window.text.splitlines())) <= 80
        window.type("/quit\r")
    assert side.said == []


async def test_typing_is_shown_above_the_input_until_something_comes() -> None:
    window, side = Window(), ScriptedBot()
    async with phone_in(window, side):
        side.on_typing(True)
        side.on_typing(True)
        await window.shows(lambda text: text.startswith("Bot is typing…\n> "))
        window.type("hm")
        await window.shows(lambda text: text == "Bot is typing…\n> hm")
        side.send(FromBot(NOON, "hello"))
        await window.shows(lambda text: text.endswith("╯\n> hm"))
        assert "typing" not in window.text
        side.on_typing(True)
        side.send(FromBot(NOON + 1, "hello again", replaces=NOON))
        await window.shows(lambda text: "hello again" in text)
        assert (window.text.count("╭"), "typing" in window.text) == (1, False)
        window.type("\x15\x04")


async def test_a_window_that_is_resized_is_drawn_anew() -> None:
    window, side = Window(columns=60), ScriptedBot()
    async with phone_in(window, side):
        side.send(FromBot(NOON, "a text of thirty characters ok"))
        window.type("unsent")
        await window.shows(lambda text: "╯\n> unsent" in text)
        window.resize(40, 12)
        os.kill(os.getpid(), signal.SIGWINCH)
        await window.shows(lambda text: text.count("│") > 2)
        assert max(map(cells, window.text.splitlines())) < 40
        assert window.text.endswith("╯\n> unsent")
        side.send(FromBot(NOON + 1, "edited", replaces=NOON))
        await window.shows(lambda text: "edited" in text)
        assert "thirty" not in window.text
        window.type("\x15\x04")


async def test_the_terminal_is_given_back_as_it_was_also_after_an_interrupt() -> None:
    async with phone_in(Window(), ScriptedBot()) as phone:
        phone.cancel()


async def test_without_colour_a_terminal_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        window, side = Window(), ScriptedBot()
        async with phone_in(window, side):
            side.send(FromBot(NOON, "hello"))
            await window.shows(lambda text: "hello" in text)
            assert ("\x1b[32m" in window.written) is coloured
            window.type("\x04")
