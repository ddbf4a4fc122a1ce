"""Plant real mistakes into copies of the project; the simulator must find each of them.

`python -m tests.simulation.planted [--seeds 2000] [--jobs N] [--list] [NAME ...]`

Each fault changes a few lines, as a person could by mistake, and leaves ordinary life intact. If
the simulator does not find it, the world or its judge has a gap. The project itself must be clean:
with the same seeds, `python -m tests.simulation` finds nothing in it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("bot", "conversation_store", "tools", "tests", "pyproject.toml")
SHM: Final = Path("/dev/shm")

MOST_SECONDS: Final = 3_600.0
"""A fault may also let the program run in a circle; that counts as not found."""

PLAYED: Final = re.compile(r"(\d+) seeds, [\d.]+ virtual hours, \d+ failures")
FAILURE: Final = re.compile(r"seed (\d+): (.*)")


@dataclass(frozen=True, slots=True)
class Change:
    """Replacement of a text that occurs once in a file."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake.

    Attributes:
        name: some words, for the command line.
        reason: what goes wrong.
    """

    name: str
    reason: str
    changes: tuple[Change, ...]


ASK: Final = "bot/chat/ask.py"
CHAT: Final = "bot/chat/chat.py"
OUTBOX: Final = "bot/chat/outbox.py"
TURN: Final = "bot/chat/turn.py"
DAEMON: Final = "bot/signal/signal_daemon.py"
RECEIPTS: Final = "bot/signal/receipts.py"
STORED_OUTBOX: Final = "conversation_store/outbox.py"
STORED_TURNS: Final = "conversation_store/turns.py"

FAULTS: Final = (
    # A message comes in
    Fault(
        "messages wait in memory",
        "To save commits, messages are collected for two seconds; a kill loses them.",
        (
            Change(
                "bot/signal/messenger.py",
                "delivery = [await self._waiting.get()]\n",
                "delivery = [await self._waiting.get()]\n            await asyncio.sleep(2.0)\n",
            ),
        ),
    ),
    Fault(
        "intake gives up",
        "A message that is not stored within a second is dropped, for example while the disk is"
        " full.",
        (
            Change(
                "bot/signal/messenger.py",
                "            await deliver(delivery)\n",
                "            try:\n"
                "                await asyncio.wait_for(deliver(delivery), 1.0)\n"
                "            except TimeoutError:\n"
                '                log.warning("signal.slow_store")\n',
            ),
        ),
    ),
    Fault(
        "stop without storing",
        "At a stop, the messages that were read are not stored.",
        (
            Change(
                DAEMON,
                "        await self._queue.all_delivered(seconds=delivery_seconds)\n",
                "",
            ),
        ),
    ),
    Fault(
        "frames counted twice",
        "A message that signal-cli delivers twice is answered twice.",
        (
            Change(
                "conversation_store/schema.py",
                "    quote_timestamp INTEGER,\n    UNIQUE (account, author, timestamp, kind)\n",
                "    quote_timestamp INTEGER\n",
            ),
        ),
    ),
    # The store
    Fault(
        "commit without a sync",
        "A commit returns before the disk has it, so a power cut takes back what the bot has acted"
        " on.",
        (
            Change(
                "conversation_store/connections.py",
                '"synchronous = FULL"',
                '"synchronous = NORMAL"',
            ),
        ),
    ),
    Fault(
        "no transaction",
        "Each statement is committed alone, so a kill leaves half of an operation.",
        (
            Change("conversation_store/connections.py", '        db.run("BEGIN IMMEDIATE")\n', ""),
            Change("conversation_store/connections.py", '            db.run("COMMIT")\n', ""),
        ),
    ),
    Fault(
        "refused writes dropped",
        "A batch that the disk refused is not written again, and its callers wait for ever.",
        (
            Change(
                "conversation_store/database.py",
                "            del batch[: len(outcomes)]\n",
                "            batch.clear()\n",
            ),
        ),
    ),
    # A turn
    Fault(
        "two workers in a chat",
        "Each message of a chat gets a worker of its own, so messages overtake each other.",
        (Change(CHAT, "        if not queue.is_worked:\n", "        if True:\n"),),
    ),
    Fault(
        "newest first after a restart",
        "A start queues the waiting messages in the wrong order.",
        (
            Change(
                "conversation_store/messages.py",
                "WHERE state = 'waiting'{one_turn} ORDER BY id\"",
                "WHERE state = 'waiting'{one_turn} ORDER BY id DESC\"",
            ),
        ),
    ),
    Fault(
        "unanswered messages forgotten",
        "A start does not look for messages that owe an answer.",
        (
            Change(
                CHAT,
                "unanswered = await self.store.messages.unfinished()",
                "unanswered: tuple[AcceptedMessage, ...] = ()",
            ),
        ),
    ),
    Fault(
        "answered messages stay open",
        "The end of a turn does not close its message, so the next start answers it again.",
        (Change(STORED_TURNS, "    messages.close(db, row, outcome)\n", ""),),
    ),
    Fault(
        "joined messages in memory",
        "The words of a message that joins a running turn are not stored with the turn: a restart"
        " goes on without them.",
        (
            Change(
                STORED_TURNS,
                "        _add_message(db, turn_id, Message(Role.USER, content), self._now_ms())\n",
                "",
            ),
        ),
    ),
    Fault(
        "joined messages stay open",
        "A message that joined a running turn is not noted as its part, so it is answered again.",
        (
            Change(
                STORED_TURNS,
                "        for piece in pieces:\n            messages.join(db, piece.id, turn_id)\n",
                "",
            ),
        ),
    ),
    Fault(
        "results ignored by a resumed turn",
        "A turn begins again with its first message after a restart, and repeats its calls.",
        (
            Change(
                STORED_TURNS,
                "            history.of_turn(db, turn_id),\n",
                "            history.of_turn(db, turn_id)[:1],\n",
            ),
        ),
    ),
    Fault(
        "no results stored",
        "The result of a call is not stored before the model is asked again.",
        (
            Change(
                STORED_TURNS,
                "            db.run(sql, content, entry.outcome, call)\n",
                "            pass\n",
            ),
        ),
    ),
    # Calls and questions
    Fault(
        "no intent before the effect",
        "Nothing is stored before an allowed call runs, so a restart runs it again.",
        (
            Change(
                TURN,
                "        await self.parts.store.questions.begin(self.id, request.call_id,"
                " self.helper)\n",
                "",
            ),
        ),
    ),
    Fault(
        "begun calls run again",
        "A restart repeats a call that was cut off, although it may have taken effect.",
        (
            Change(
                ASK,
                "        if stored is not None and stored.begun:\n"
                "            return Decision.INTERRUPTED\n",
                "",
            ),
        ),
    ),
    Fault(
        "a no counts as a yes",
        "A call runs after any answer to its question.",
        (
            Change(
                "tools/executor.py",
                "if decision is not Decision.YES:",
                "if decision in {Decision.NOT_ASKED, Decision.SILENCE}:",
            ),
        ),
    ),
    Fault(
        "open questions forgotten",
        "After a restart the bot takes no answers to questions that it asked before.",
        (
            Change(
                ASK,
                "        for stored in await self.store.questions.open():\n"
                "            self._listen(stored)\n",
                "",
            ),
        ),
    ),
    Fault(
        "questions asked again",
        "After a restart the bot asks an open question about a call a second time.",
        (
            Change(
                ASK,
                "        if stored.timestamps:\n            return self._find(",
                "        if self._find(stored.chat, (*stored.timestamps, 0)[-1]):\n"
                "            return self._find(",
            ),
        ),
    ),
    Fault(
        "suspended turns not continued",
        "The answer to a question of the model is stored, and its turn goes on at the next start.",
        (
            Change(
                ASK,
                "            await self.go_on(stored.turn_id)\n",
                '            log.debug("approval.answered")\n',
            ),
        ),
    ),
    Fault(
        "stop misses a waiting turn",
        "`!stop` does not end the turn that waits for a yes.",
        (
            Change(
                CHAT,
                "if turn is not None and turn.pieces[0].id < before and await turn.stop():",
                "if turn is not None and not self.chats.questions.awaited_by(\n"
                "            self.id, turn.pieces[0].id\n"
                "        ) and turn.pieces[0].id < before and await turn.stop():",
            ),
        ),
    ),
    # Edits and deletions
    Fault(
        "edited answers sent anew",
        "The answer to an edit is a new message, and the answer to the old words stays.",
        (
            Change(
                STORED_OUTBOX,
                "    standing = _take_standing(db, answer)"
                " if answer.replaces is not None and answer.parts else []\n",
                "    standing: list[Row] = []\n",
            ),
        ),
    ),
    Fault(
        "edits keep the old history",
        "After an edit, the model still reads the old words and its answer to them.",
        (
            Change(
                "conversation_store/changes.py",
                "    deletion.forget(db, rows)\n    return True\n",
                "    return True\n",
            ),
        ),
    ),
    Fault(
        "edits of the first version",
        "The second edit of an answer names a version that was replaced, and phones ignore it.",
        (
            Change(
                OUTBOX,
                "        return await self.messenger.send(\n            part.chat,\n",
                "        if part.replaces is not None and part.text:\n"
                "            await self.messenger.send(\n"
                "                part.chat, part.text, styles=part.styles, replaces=part.replaces\n"
                "            )\n"
                "            return part.replaces\n"
                "        return await self.messenger.send(\n            part.chat,\n",
            ),
        ),
    ),
    Fault(
        "deletions leave the answer",
        "The answer to a deleted message stays on people's phones.",
        (
            Change(
                "conversation_store/changes.py",
                "turn_id, now_ms, with_answer=True)",
                "turn_id, now_ms, with_answer=False)",
            ),
        ),
    ),
    Fault(
        "deletions do not follow edits",
        "A deletion forgets the message as it was first, and keeps its edits.",
        (
            Change(
                "conversation_store/changes.py",
                "    found = messages.versions(db, deletion_.message)\n    closed, told",
                "    found = messages.versions(db, deletion_.message)[:1]\n    closed, told",
            ),
        ),
    ),
    Fault(
        "deletions keep facts",
        "What the bot remembered of a message stays after the deletion of the message.",
        (
            Change(
                "conversation_store/deletion.py",
                '    for table in ("facts", "instructions"):\n',
                '    for table in ("instructions",):\n',
            ),
        ),
    ),
    Fault(
        "deletions lost at a restart",
        "A start passes over a deletion that the process before had only stored.",
        (
            Change(
                CHAT,
                '                elif message.kind == "deletion":\n'
                "                    await chat.delete(accepted)\n",
                '                elif message.kind == "deletion":\n                    continue\n',
            ),
        ),
    ),
    Fault(
        "answers in flight stay",
        "An answer that is on its way while its message is deleted stays on phones.",
        (
            Change(
                STORED_OUTBOX,
                "        if not rows:  # phones will confirm it all the same\n",
                "        if False:  # phones will confirm it all the same\n",
            ),
        ),
    ),
    Fault(
        "no scrub",
        "The log of the database is not emptied after a deletion.",
        (
            Change(
                "conversation_store/database.py",
                "        self._to_rewrite.set()\n        try:\n            done: bool =",
                "        return True\n        try:\n            done: bool =",
            ),
        ),
    ),
    Fault(
        "no secure delete",
        "Deleted words stay in the file, as no page is overwritten or rewritten.",
        (
            Change(
                "conversation_store/connections.py",
                '"secure_delete = ON"',
                '"secure_delete = OFF"',
            ),
            Change(
                "conversation_store/database.py",
                "        if not self._to_rewrite.is_set():\n            return\n",
                "        if self._to_rewrite.is_set():\n            return\n",
            ),
        ),
    ),
    Fault(
        "words in the log",
        "The log has lost its filter and keeps the words of messages, also of deleted ones.",
        (
            Change(
                "bot/chat/intake.py",
                "        message = accepted.message\n        self._watch_timer(message)\n",
                "        message = accepted.message\n"
                '        log.info("intake.took", text=message.text)\n'
                "        self._watch_timer(message)\n",
            ),
            Change(
                "bot/observability/logs.py",
                "            _drop_unknown_keys,\n            withhold_values,\n",
                "",
            ),
        ),
    ),
    # Reminders
    Fault(
        "reminders end before they are sent",
        "A due reminder is marked as done and sent without a row in the outbox: a kill or an error"
        " loses it.",
        (
            Change(
                "bot/chat/alarm.py",
                "        message = await self.reminders.deliver(reminder, text, further, now_ms)\n"
                "        if message is None:\n"
                "            return False\n",
                "        await self.reminders.pass_over(reminder, further)\n"
                "        try:\n"
                "            await self.messenger.send(reminder.chat, text)\n"
                "        except Exception:\n"
                '            log.warning("reminder.not_sent")\n',
            ),
            Change(
                "bot/chat/alarm.py",
                "        await self.chats.notices.outbox.deliver((message,), just_stored=True)\n",
                "",
            ),
        ),
    ),
    Fault(
        "reminders end after they are sent",
        "A due reminder is sent and then marked as done: a kill in between sends it twice.",
        (
            Change(
                "bot/chat/alarm.py",
                "        message = await self.reminders.deliver(reminder, text, further, now_ms)\n"
                "        if message is None:\n"
                "            return False\n",
                "        sent = await self.chats.notices.outbox.doubts.send(reminder.chat, text)\n"
                "        message = await self.reminders.deliver(reminder, text, further, now_ms)\n"
                "        if message is None:\n"
                "            return False\n",
            ),
            Change(
                "bot/chat/alarm.py",
                "        await self.chats.notices.outbox.deliver((message,), just_stored=True)\n",
                "        await self.chats.store.outbox.mark_sent(message, sent)\n",
            ),
        ),
    ),
    # The way out
    Fault(
        "marked before it is sent",
        "An answer counts as sent before the request to signal-cli, so a kill or an error loses"
        " it.",
        (
            Change(
                OUTBOX,
                "                timestamp = await self._send(part)\n",
                "                await self.store.outbox.mark_sent(part, 0)\n"
                "                timestamp = await self._send(part)\n",
            ),
        ),
    ),
    Fault(
        "marked too late",
        "That an answer was sent is written with a later commit; a kill before it sends the answer"
        " again.",
        (
            Change(
                OUTBOX,
                "        withdrawal = await self.store.outbox.mark_sent(part, timestamp,"
                " by_receipt=by_receipt)\n",
                "        from conversation_store.outbox import _mark_sent\n"
                "        withdrawal = None\n"
                "        self.store._database.write_later(\n"
                "            lambda db: _mark_sent(db, part.id, timestamp) and None, 5.0\n"
                "        )\n",
            ),
        ),
    ),
    Fault(
        "outbox not resumed",
        "A start does not send the answers that the process before had only stored.",
        (
            Change(
                CHAT,
                "        unsent = await self.store.outbox.unfinished()\n",
                "        unsent: tuple[OutgoingMessage, ...] = ()\n",
            ),
        ),
    ),
    Fault(
        "only the first part resumed",
        "A start sends one waiting part of each chat and forgets the others.",
        (
            Change(
                CHAT,
                "        for part in unsent:\n",
                "        for part in {one.chat: one for one in reversed(unsent)}.values():\n",
            ),
        ),
    ),
    Fault(
        "parts sent at once",
        "The parts of a long answer are sent at the same time and come in any order.",
        (
            Change(
                OUTBOX,
                "                sent += await self._deliver(part,"
                " is_current=just_stored and not number)\n",
                "                sent += 1\n"
                "        await asyncio.gather(\n"
                "            *(self._deliver(one, is_current=False) for one in parts)\n"
                "        )\n",
            ),
        ),
    ),
    # Doubts
    Fault(
        "errors count as not sent",
        "Every error of a send counts as a failure, although it may follow the delivery.",
        (
            Change(
                DAEMON,
                "    return SignalUnclear(timestamp=sent.timestamp if sent else None)\n",
                '    return SignalUnavailable(f"signal-cli could not send (error {code}).")\n',
            ),
        ),
    ),
    Fault(
        "errors count as sent",
        "A send without a reply counts as done, although it may have failed.",
        (
            Change(
                OUTBOX,
                "                if proven is None and part.attempts >= MAX_COPIES:\n",
                "                if proven is None:\n",
            ),
        ),
    ),
    Fault(
        "copies without a limit",
        "A message that no phone confirms is sent again and again.",
        (
            Change(
                OUTBOX,
                "                if proven is None and part.attempts >= MAX_COPIES:\n",
                "                if proven is None and part.attempts >= 1_000:\n",
            ),
        ),
    ),
    Fault(
        "doubts end at the start",
        "A start does not expect that signal-cli still works on a request of the process before.",
        (Change(STORED_OUTBOX, "LATE_START_MS: Final = 10_000\n", "LATE_START_MS: Final = 0\n"),),
    ),
    Fault(
        "doubts forgotten at a restart",
        "The store does not keep sends with an unknown result.",
        (
            Change(
                OUTBOX,
                "        sends, confirmed = await self.store.doubts.load()\n",
                "        _, confirmed = await self.store.doubts.load()\n"
                "        sends: tuple[Doubt, ...] = ()\n",
            ),
        ),
    ),
    Fault(
        "a reply settles earlier doubts",
        "The reply to a later send of a message counts as the receipt of an earlier one.",
        (
            Change(
                OUTBOX,
                "                return await self._sent(part, timestamp, by_receipt=False)\n",
                "                return await self._sent(part, timestamp, by_receipt=True)\n",
            ),
        ),
    ),
    Fault(
        "receipts for several sends",
        "A receipt settles a send although it may belong to another one.",
        (
            Change(
                RECEIPTS,
                "            shared = any(one.may_have(timestamp, people) for one in others)\n",
                "            shared = False\n",
            ),
        ),
    ),
    Fault(
        "receipts of other people",
        "A receipt settles a send to a chat of other people.",
        (
            Change(
                RECEIPTS,
                "        return in_time and (self.people is None"
                " or self.people.issuperset(people))\n",
                "        return in_time\n",
            ),
            Change(
                RECEIPTS,
                "        theirs = [one for one in self._attempts"
                " if one.people is None or person in one.people]\n",
                "        theirs = [*self._attempts]\n",
            ),
        ),
    ),
    Fault(
        "copies stay",
        "A second copy of a message is never deleted.",
        (
            Change(
                OUTBOX,
                "            for attempt, copy in await receipts.copies():\n",
                "            for attempt, copy in list[tuple[Attempt, int]]():\n",
            ),
        ),
    ),
    Fault(
        "both copies deleted",
        "With the second copy of a message, the first one is deleted as well.",
        (
            Change(
                OUTBOX,
                "                gone.append((row, attempt.chat, copy))\n",
                "                gone.append((row, attempt.chat, copy))\n"
                "                if (kept := receipts._resent.get(attempt)) is not None:\n"
                "                    gone.append((None, attempt.chat, kept))\n",
            ),
        ),
    ),
    # Time and tasks
    Fault(
        "a wait by the wrong clock",
        "The wait for a receipt ends at a time of the wall clock on the clock of the event loop.",
        (
            Change(
                RECEIPTS,
                "        clock = asyncio.get_running_loop().time\n",
                "        clock = time.time\n",
            ),
        ),
    ),
    Fault(
        "a task leaks",
        "The task that shows typing outlives the process's end.",
        (
            Change(
                "bot/chat/presence.py",
                "        task = self.tasks.create_task(signs)\n",
                "        task = asyncio.ensure_future(signs)\n",
            ),
            Change(
                "bot/chat/presence.py",
                "        for task in self._running:\n            task.cancel()\n",
                "",
            ),
        ),
    ),
    Fault(
        "progress is not finished",
        "The progress message stays as if tools were still running.",
        (
            Change(
                "bot/chat/progress.py",
                "        if is_news and self.edits < MAX_EDITS - self._edits_kept:\n",
                "        if is_news and self.edits < 0:\n",
            ),
        ),
    ),
    Fault(
        "waiting is not finished",
        "After the end of a turn, the bot still tries to reach the model, says the progress.",
        (
            Change(
                "bot/chat/progress.py",
                "            said = self.say(TOOK_LONG)\n",
                "            said = self.say(STILL_TRYING)\n",
            ),
        ),
    ),
)


def text_with(change: Change, root: Path) -> str:
    """Return the text of a file with a change; ValueError unless the old text occurs once."""
    text = (root / change.file).read_text()
    if (times := text.count(change.old)) != 1:
        raise ValueError(f"{change.file} has this text {times} times, not once:\n{change.old}")
    return text.replace(change.old, change.new)


def unfit(faults: Sequence[Fault], root: Path = PROJECT) -> list[str]:
    """Return what prevents faults from being planted, in words."""
    found = []
    for fault in faults:
        for change in fault.changes:
            try:
                text_with(change, root)
            except ValueError as error:
                found.append(f"{fault.name}: {error}")
    return found


@contextmanager
def planted(fault: Fault) -> Iterator[Path]:
    """Provide a copy of the project with a fault."""
    where = SHM if os.access(SHM, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="planted-", dir=where) as folder:
        root = Path(folder)
        for name in COPIED:
            if (PROJECT / name).is_dir():
                without = shutil.ignore_patterns("__pycache__")
                shutil.copytree(PROJECT / name, root / name, ignore=without)
            else:
                shutil.copy(PROJECT / name, root / name)
        for change in fault.changes:
            (root / change.file).write_text(text_with(change, root))
        yield root


def python(root: Path, *arguments: str) -> str:
    """Run Python on a copy and return its output; the copy comes before the installed project."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=MOST_SECONDS,
    )
    return done.stdout


def search(fault: Fault, seeds: int, jobs: int) -> tuple[bool, str]:
    """Play histories until one shows a fault; return whether one does, and a line about it."""
    with planted(fault) as root:
        imported = python(root, "-c", "import bot; print(bot.__file__)").strip()
        if imported != str(root / "bot" / "__init__.py"):
            raise RuntimeError(f"Python imports another copy of the bot: {imported}")
        try:
            output = python(
                root,
                *("-m", "tests.simulation", f"--seeds={seeds}", f"--jobs={jobs}"),
                "--until-failure",
            )
        except subprocess.TimeoutExpired:
            return False, f"NOT FOUND in {MOST_SECONDS:.0f} seconds: {fault.name}"
    failure = next(filter(None, map(FAILURE.match, output.splitlines())), None)
    if failure is not None:
        seed, rules = failure.groups()
        return True, f"found after {int(seed) + 1} seeds (seed {seed}): {fault.name}: {rules}"
    if PLAYED.search(output) is None:
        return False, f"NOT FOUND, the simulation ended early: {fault.name}\n{output[-2_000:]}"
    return False, f"NOT FOUND in {seeds} seeds: {fault.name}"


def main(arguments: Sequence[str]) -> int:
    """Search for each fault, and print one line about it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=2_000, help="find each within so many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the faults, and plant none")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these faults")
    wanted = parser.parse_args(arguments)
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in wanted.names if name not in known]:
        parser.error(f"there is no fault named {unknown[0]!r}; --list prints all")
    faults = [known[name] for name in wanted.names] or FAULTS
    if wanted.list:
        print(*(f"{one.name}: {one.reason}" for one in FAULTS), sep="\n")
        return 0
    if problems := unfit(faults):
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    missed = 0
    for fault in faults:
        is_found, line = search(fault, wanted.seeds, wanted.jobs)
        missed += not is_found
        print(line, flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
