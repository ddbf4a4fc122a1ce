"""The judge of a world: it knows what people did and what phones show, not how the bot works.

A frame that was written to the bot shortly before the bot was killed may be lost, because
signal-cli keeps no copy. So for each act of a person the judge knows whether the bot must have it.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from conversation_store.models import ChatId
from tests.simulation.mind import PARTS
from tests.simulation.phones import PLAN, PROGRESS, QUESTION, REMINDER, Bubble, Phone
from tests.simulation.world import Command, Said, World

STORED_SECONDS: Final = 1.5
"""A healthy bot has stored a frame so long after it was written."""
BEFORE_SECONDS: Final = 0.5
"""Signal's side notices so late that a connection has ended."""
HEALED_SECONDS: Final = 5.0
ON_THE_WAY_SECONDS: Final = 0.1
"""A request that was cancelled may reach the model after the next one."""
TOGETHER_SECONDS: Final = 30.0
"""Messages closer to each other may form one turn."""
JOINING_SECONDS: Final = 5.0
"""A healthy bot has begun a turn so long after its message, so later ones do not join it."""

_CALL: Final = re.compile(r"\bmk\w+:\d+")
_RUNNING: Final = re.compile(PROGRESS + " (Using .*…|.* (yet|noch nicht)[.])")
ORDERLY: Final = frozenset(
    {"says", "edits", "deletes", "commands", "reacts", "confirms", "irritates"}
)
"""Events after which the bot's edits arrive."""
_ANSWERED: Final = re.compile(r"\bre (mk\w+)")
BEFORE_MS: Final = 2_000
AFTER_MS: Final = 1_000
"""The clock of signal-cli's machine may be behind or ahead by so much."""
MOST_COPIES: Final = 3
"""A message that no phone confirms is sent so often within a day."""
WAITING: Final = frozenset({"ask", "plan"})
"""Work that waits for people, so that later messages may be answered first."""
ASKING: Final = frozenset({"ask", "plan", "write", "schedule"})
"""Work that needs a person's answer."""
FAILED: Final = re.compile(
    r"Please try again|cannot reach my model|broke off|operator|went wrong|no answer|"
    r"zu lange für die Antwort|Betreiber|Bitte versuche es"
)
"""Words of the sentences that explain why there is no answer."""
UNSEEN: Final = re.compile(r"nobody had seen yet|noch niemand gesehen")
"""Words of the sentence about an unsent answer that was deleted with one of its messages."""
FORGETTING: Final = ("!stop", "!clear", "!undo", "!retry")


def answered(text: str) -> list[str]:
    """Return the marks that an answer of the model names; a command may repeat such answers."""
    return _ANSWERED.findall(text) if text.startswith("re ") else []


def may_be_lost(world: World, timestamp: int) -> bool:
    """Return whether a frame may have been lost on its way to the bot."""
    evidence = world.evidence
    places = evidence.written.get(timestamp, [])
    return all(_is_unsafe(world, life, at) for life, at in places)


def _is_unsafe(world: World, life: int, at: float) -> bool:
    evidence = world.evidence
    until = at + STORED_SECONDS
    if until > evidence.ended:
        return True
    for began, ended in evidence.ills:
        if began - 1 <= at <= ended + HEALED_SECONDS:
            until = max(until, ended + HEALED_SECONDS)
    ends = [*evidence.kills, *((life, time) for life, time, _ in evidence.exits)]
    # After a kill, Signal's side may still write to the dead process's connection.
    killed = any(
        (life == of and time <= until and time >= at) or at - BEFORE_SECONDS <= time <= at
        for of, time in ends
    )
    broken = any(at - BEFORE_SECONDS <= time <= at + BEFORE_SECONDS for time in evidence.breaks)
    return killed or broken


def phones_of(world: World, chat: ChatId) -> list[Phone]:
    """Return the phones that see a chat."""
    return [phone for phone in world.phones if world._is_in(phone, chat)]


def _ever(phone: Phone, chat: ChatId, mark: str) -> bool:
    return any(
        mark in answered(text) for bubble in phone.bubbles.get(chat, ()) for _, text in bubble.texts
    )


def _commands(world: World, chat: ChatId, *names: str) -> Iterator[Command]:
    return (
        one
        for one in world.evidence.commands
        if one.chat == chat and (not names or one.text.split()[0] in names)
    )


def is_owed(world: World, said: Said) -> bool:
    """Return whether the person must have got an answer to a message."""
    if said.deletion or said.timer or all(may_be_lost(world, at) for at in said.timestamps):
        return False
    if any(one.at >= said.at - 1 for one in _commands(world, said.chat, *FORGETTING)):
        return False
    # A lost yes leaves a question open, and so does a clock that moves away from its deadline.
    may_stay_open = world.evidence.clock_turns or _an_answer_is_lost(world)
    if may_stay_open and any(one.work in ASKING for one in _near(world, said)):
        return False
    return not _is_near_a_timer(world, said)


def _near(world: World, said: Said) -> Iterator[Said]:
    """Yield the messages that may have joined a message, and the message itself."""
    alike = (one for one in world.evidence.said if one.chat == said.chat)
    return (one for one in alike if abs(one.at - said.at) < TOGETHER_SECONDS)


def _is_near_a_timer(world: World, said: Said) -> bool:
    """Whether a message disappears: by its own timer, or with a message that it may have joined."""
    return any(one.timer for one in _near(world, said))


def _an_answer_is_lost(world: World) -> bool:
    return any(may_be_lost(world, at) for at in world.evidence.answer_frames)


def pending(world: World) -> list[str]:
    """Return the broken rules that the bot may still mend."""
    return [*missing(world), *_doubled(world), *_still_shown(world)]


def missing(world: World) -> list[str]:
    """Return the answers that the bot still owes."""
    owed: list[str] = []
    for chat in _chats(world):
        for phone in phones_of(world, chat):
            lacking = [
                one
                for one in world.evidence.said
                if one.chat == chat and is_owed(world, one) and not _is_answered(world, phone, one)
            ]
            lacking = [one for one in lacking if one.at > _excused_until(world, phone, chat)]
            lacking = [one for one in lacking if not _is_told_of_a_deletion(world, phone, one)]
            if lacking and chat not in world.signal.refused:
                names = ", ".join(f"{one.marks[-1]} ({one.work})" for one in lacking)
                owed.append(f"{phone.person.name} got no answer to {names}")
    return owed + [line for line in _reminders(world) if line.endswith("never came")]


def _excused_until(world: World, phone: Phone, chat: ChatId) -> float:
    """Return when a chat last read a sentence that says why there is no answer."""
    said = [text for bubble in phone.bubbles.get(chat, ()) for text in bubble.texts]
    failed = [at for at, text in said if FAILED.search(text)]
    return max(failed, default=0.0) if world.has_moods else 0.0


def _is_told_of_a_deletion(world: World, phone: Phone, said: Said) -> bool:
    """Whether people were told that an answer was deleted with another message."""
    texts = [text for bubble in phone.bubbles.get(said.chat, ()) for text in bubble.texts]
    is_told = any(at > said.at and UNSEEN.search(text) for at, text in texts)
    return is_told and any(one.deletion for one in _near(world, said))


def _is_answered(world: World, phone: Phone, said: Said) -> bool:
    if any(_ever(phone, said.chat, mark) for mark in said.marks):
        return not _is_plain(world, said.chat) or _is_whole_answer(world, phone, said)
    return any(chat == said.chat and at >= said.timestamps[0] for chat, at in phone.reactions)


def _is_plain(world: World, chat: ChatId) -> bool:
    """Whether nobody has changed or taken back anything in a chat, so that all answers stand."""
    said = (one for one in world.evidence.said if one.chat == chat)
    changed = any(one.deletion or one.timer or len(one.marks) > 1 for one in said)
    return not changed and not any(_commands(world, chat, *FORGETTING))


def _is_whole_answer(world: World, phone: Phone, said: Said) -> bool:
    """Whether a message has its answer still; a long one has all of its parts, in order."""
    shown = [text for bubble in phone.shown(said.chat) for _, text in bubble.texts]
    found = next((text for text in shown if said.marks[0] in answered(text)), None)
    if found is None:
        return False
    last = answered(found)[-1]  # its paragraphs are named after it
    is_long = any(one.work == "long" and one.marks == [last] for one in world.evidence.said)
    parts = range(PARTS if is_long else 0)
    in_order = ".*".join(f"more {last}/{number}" for number in parts)
    return re.search(in_order, "\n".join(shown), re.DOTALL) is not None


def _chats(world: World) -> list[ChatId]:
    chats = (*(one.chat for one in world.evidence.said), *(c.chat for c in world.evidence.commands))
    return list(dict.fromkeys(chats))


def verdict(world: World, leftovers: Sequence[str]) -> list[str]:
    """Return every broken rule, in words; empty if the bot kept its promises."""
    return [
        *missing(world),
        *_doubled(world),
        *_too_many(world),
        *_reordered(world),
        *_side_effects(world),
        *_after_stops(world),
        *_asked_twice(world),
        *_left_progress(world),
        *(f"the model was told differently about {line}" for line in world.mind.retold),
        *(line for line in _reminders(world) if not line.endswith("never came")),
        *_remains(world),
        *_still_shown(world),
        *_exits(world),
        *(f"the log shows a bug: {line[-300:]}" for line in world.log if '"exception"' in line),
        *leftovers,
    ]


def copies(world: World) -> int:
    """Return the number of visible copies that no phone has confirmed."""
    return sum(len(group) - 1 for _, group in _alike(world) if _confirmed(world, group) <= 1)


def _alike(world: World) -> Iterator[tuple[Phone, list[Bubble]]]:
    """Yield visible messages that say the same and should be one."""
    for phone in world.phones:
        for chat in phone.bubbles:
            groups: dict[str, list[Bubble]] = {}
            for bubble in phone.shown(chat):
                for name in _named(bubble):
                    groups.setdefault(name, []).append(bubble)
            for name, group in groups.items():
                if len(group) > max(1, world.mind.reminders[name]):
                    yield phone, group


def _named(bubble: Bubble) -> list[str]:
    """Return names of what a message says, so that its copies have the same ones."""
    if bubble.text.startswith("more mk"):
        return [bubble.text[:40]]
    if bubble.text.startswith(REMINDER):
        return re.findall(r"\b(due mk\w+|re sc\w+)", bubble.text)
    return [f"re {mark}" for mark in answered(bubble.text)]


def _confirmed(world: World, group: Sequence[Bubble]) -> int:
    """Return how many messages the same phone has confirmed, so that the bot must know it.

    If one member of a group has confirmed the first send and another one the second, the bot
    cannot tell whether the first member has the second one, so it deletes nothing.
    """
    by_phone = Counter(
        phone for bubble in group for phone in {*_phones_that_confirmed(world, bubble)}
    )
    return max(by_phone.values(), default=0)


def _phones_that_confirmed(world: World, bubble: Bubble) -> Iterator[int]:
    for timestamp in (bubble.root, bubble.last):
        for phone, frame in world.evidence.receipts.get(timestamp, ()):
            if not may_be_lost(world, frame):
                yield phone


def _too_many(world: World) -> Iterator[str]:
    """Yield messages that were sent more often than the bot repeats a send in doubt."""
    if world.evidence.kills:  # each may add a copy
        return
    for phone in world.phones:
        for chat in (one for one in phone.bubbles if _is_plain(world, one)):
            names = (name for bubble in phone.bubbles[chat] for name in _named(bubble))
            for name, times in Counter(names).items():
                if times > max(MOST_COPIES, world.mind.reminders[name]):
                    yield f"{phone.person.name} got {times} times: {name}"


def _doubled(world: World) -> Iterator[str]:
    for phone, group in _alike(world):
        is_unclear = _is_beside_another_send(world, phone, group) or _has_no_time(world, group)
        if _confirmed(world, group) > 1 and not is_unclear:
            yield f"{phone.person.name} sees {len(group)} times: {group[0].text[:50]!r}"


def _is_beside_another_send(world: World, phone: Phone, group: Sequence[Bubble]) -> bool:
    """Whether a receipt of a copy may as well be of another send to the phone, which is in doubt.

    The bot deletes nothing that a person may miss, so it leaves such a copy.
    """
    sends = {one.root for one in group}
    unheard = world.evidence.unheard
    others = [one for one in (*world.signal.doubts, *unheard) if one.timestamp not in sends]
    return any(
        other.since_ms - BEFORE_MS < send < other.until_ms + AFTER_MS
        for other in others
        for send in sends
        if world._is_in(phone, other.chat)
    )


def _has_no_time(world: World, group: Sequence[Bubble]) -> bool:
    """Whether a copy was on its way at the end of a process whose clock had been turned.

    The store does not know when it was sent: after a turn back, it may be before the message.
    """
    turns, ends = world.evidence.clock_turns, [at for _, at in world.evidence.stops[:-1]]
    ends += [at for _, at in world.evidence.kills]
    is_unanswered = any(one.root in world.signal.unanswered for one in group)
    return is_unanswered and any(turn < end for turn in turns for end in ends)


def _reordered(world: World) -> Iterator[str]:
    for chat in _chats(world):
        order = [
            one.marks[0]
            for one in world.evidence.said
            if one.chat == chat and len(one.marks) == 1 and one.work != "react"
            if not _may_have_joined_a_wait(world, one)
            if not any(c.at >= one.at - 1 for c in _commands(world, chat, *FORGETTING))
        ]
        waits = {mark for one in world.evidence.said if one.work in WAITING for mark in one.marks}
        for phone in phones_of(world, chat):
            seen: list[str] = []
            for bubble in phone.shown(chat):
                if waits & set(answered(bubble.text)):
                    continue
                seen += [m for m in answered(bubble.text) if m in order and m not in seen]
            if seen != sorted(seen, key=order.index):
                yield f"{phone.person.name} sees answers in the order {seen}, not {order}"


def _may_have_joined_a_wait(world: World, said: Said) -> bool:
    waiting = (one.at for one in _near(world, said) if one.work in WAITING)
    return any(said.at < at + JOINING_SECONDS for at in waiting)


def _side_effects(world: World) -> Iterator[str]:
    done = Counter(call for call, _ in world.evidence.done)
    for call, times in done.items():
        if times > 1:
            yield f"the side effect {call} happened {times} times"
        said = [yes for one, yes, _ in world.evidence.answers if one == call]
        if True not in said:
            yield f"the side effect {call} happened without a yes"


def _after_stops(world: World) -> Iterator[str]:
    """Yield side effects for messages that a `!stop` of the same person had ended."""
    for stop in world.evidence.commands:
        if stop.text != "!stop" or may_be_lost(world, stop.timestamp):
            continue
        since = _certain_at(world, stop.timestamp) + STORED_SECONDS
        since += _ill_after(world, since)
        for said in world.evidence.said:
            earlier = (said.who, said.chat) == (stop.who, stop.chat) and said.at < stop.at - 1
            for call, at in world.evidence.done:
                if earlier and at > since and call.partition(":")[0] == said.marks[0]:
                    yield f"the side effect {call} happened after a !stop"


def _asked_twice(world: World) -> Iterator[str]:
    for phone in world.phones:
        for chat in phone.bubbles:
            groups: dict[str, list[Bubble]] = {}
            for bubble in phone.shown(chat):
                for call in _CALL.findall(bubble.texts[0][1]):
                    groups.setdefault(call, []).append(bubble)
            for call, group in groups.items():
                if _confirmed(world, group) > 1:
                    yield f"{phone.person.name} sees {len(group)} questions about {call}"


def _left_progress(world: World) -> Iterator[str]:
    """Yield progress that still says that a tool is running, or that the model does not answer."""
    if not all(event.kind in ORDERLY for event in world.plan.events):
        return
    # The world does not wait for answers to these, so the model may not have answered yet.
    unawaited = {one.chat for one in world.evidence.said if one.timer}
    for phone in world.phones:
        for chat in phone.bubbles.keys() - unawaited:
            for bubble in phone.shown(chat):
                if _RUNNING.match(bubble.text):
                    yield f"{phone.person.name} still sees {bubble.text!r}"


def _reminders(world: World) -> Iterator[str]:
    if world.evidence.clock_turns:
        return
    for said in world.evidence.said:
        if said.chat in world.signal.refused:
            continue
        if said.work != "remind" or not is_owed(world, said) or len(said.marks) > 1:
            continue
        if any(one.at >= said.at - 1 for one in _commands(world, said.chat, "!reminders")):
            continue
        for phone in phones_of(world, said.chat):
            bubbles = phone.bubbles.get(said.chat, ())
            results = [
                text
                for bubble in bubbles
                for _, text in bubble.texts
                if said.marks[0] in answered(text)
            ]
            came = [
                bubble
                for bubble in phone.shown(said.chat)
                if bubble.text.startswith(REMINDER) and f"due {said.marks[0]}" in bubble.text
            ]
            is_set = results and f"{said.marks[0]} is set" in results[-1]
            if is_set and not came and _is_whole(world, answered(results[-1])):
                yield f"the reminder {said.marks[0]} never came"


def _is_whole(world: World, marks: Sequence[str]) -> bool:
    """Whether none of the messages of a turn was edited or deleted: that ends its reminders."""
    together = [one for one in world.evidence.said if not set(one.marks).isdisjoint(marks)]
    return not any(one.deletion or len(one.marks) > 1 for one in together)


def _dead_marks(world: World) -> Iterator[tuple[str, float, bool]]:
    """Yield the marks that must be forgotten, and since when.

    The bot carries out a deletion at once, and an edit when its turn comes: since the model was
    told of the new words. The last value tells whether the message was deleted.
    """
    for said in world.evidence.said:
        if _is_near_a_timer(world, said):
            continue  # phones hide everything about it by themselves
        since = _deleted_since(world, said.deletion) if said.deletion else None
        if since is not None:
            yield from ((mark, since, True) for mark in said.marks)
        elif not world.evidence.clock_turns:  # an edit long after the answer changes nothing
            for number, mark in enumerate(said.marks[:-1]):
                told = [_told(world, newer) for newer in _later_edits(world, said, number)]
                commands = _commands(world, said.chat, *FORGETTING)
                is_ended = any(one.at >= said.times[number + 1] - 1 for one in commands)
                if any(told) and not is_ended:
                    yield mark, min(filter(None, told)) + ON_THE_WAY_SECONDS, False


def _later_edits(world: World, said: Said, number: int) -> Iterator[str]:
    """Yield the marks of the edits after a version; each edit names the one before it."""
    later = zip(said.marks, said.timestamps, strict=True)
    for mark, timestamp in itertools.islice(later, number + 1, None):
        if may_be_lost(world, timestamp):
            return
        yield mark


def _deleted_since(world: World, deletion: int) -> float | None:
    """Return since when a deletion counts for certain; None if its frame may have been lost."""
    if not may_be_lost(world, deletion):
        since = _certain_at(world, deletion) + STORED_SECONDS
        return since + _ill_after(world, since)
    # Frames of a connection are stored in order, so an answer to a later one proves the earlier.
    places = world.evidence.written.get(deletion, [])
    later = (
        _told(world, mark)
        for said in world.evidence.said
        for mark, timestamp in zip(said.marks, said.timestamps, strict=True)
        for life, at in world.evidence.written.get(timestamp, [])
        if any(life == earlier_life and at > earlier for earlier_life, earlier in places)
    )
    return None if world.evidence.breaks else min(filter(None, later), default=None)


def _told(world: World, mark: str) -> float:
    """Return when the model was first told of a mark, or 0."""
    return next((asked.at for asked in world.mind.asked if mark in asked.words), 0.0)


def _certain_at(world: World, frame: int) -> float:
    times = [at for life, at in world.evidence.written[frame] if not _is_unsafe(world, life, at)]
    return min(times)


def _remains(world: World) -> Iterator[str]:
    for mark, since, _ in _dead_marks(world):
        is_quoted = mark in world.evidence.quoted
        if not is_quoted and any(mark.encode() in files for files in world.evidence.files):
            yield f"{mark} is still in the store's files"
        if any(mark in line for line in world.log):
            yield f"{mark} is in the log"
        told = any(mark in asked.words for asked in world.mind.asked if asked.at > since)
        if told and not is_quoted:
            yield f"the model was told of {mark} after it was forgotten"


def _still_shown(world: World) -> Iterator[str]:
    for mark, _, is_deleted in _dead_marks(world):
        for phone in world.phones:
            # Signal may have refused an edit of an answer, or its deletion.
            for chat in phone.bubbles.keys() - world.signal.refused:
                ended = any(_commands(world, chat, "!clear", "!stop"))
                whole = is_deleted and not ended  # these forget which answered questions there were
                shown = (one for one in phone.shown(chat) if _counts(one, is_deleted=whole))
                if any(mark in one.text and _is_known(world, phone, one) for one in shown):
                    yield f"{phone.person.name} still sees an answer to {mark}"


def _is_known(world: World, phone: Phone, bubble: Bubble) -> bool:
    """Whether the bot can know of a message: by signal-cli's reply, or by a receipt."""
    unknown = world.signal.unanswered | {one.timestamp for one in world.evidence.unheard}
    if bubble.last != bubble.root and bubble.last in unknown:
        return False  # phones then ignore the bot's later edits of it
    if bubble.root not in unknown:
        return True
    return _confirmed(world, [bubble]) > 0 and not _is_beside_another_send(world, phone, [bubble])


def _counts(bubble: Bubble, *, is_deleted: bool) -> bool:
    """Whether a message must be gone with the message that it is about."""
    is_answer = bool(answered(bubble.text)) or bubble.text.startswith("more mk")
    is_on_the_way = bubble.text.startswith((PROGRESS, QUESTION, PLAN)) or bool(bubble.options)
    return is_answer or (is_deleted and is_on_the_way)


def _ill_after(world: World, since: float) -> float:
    ends = [ended for began, ended in world.evidence.ills if began - 1 <= since <= ended + 1]
    return max((ended - since + HEALED_SECONDS for ended in ends), default=0.0)


def _exits(world: World) -> Iterator[str]:
    for life, at, cause in world.evidence.exits:
        ill = any(began - 1 <= at <= ended + HEALED_SECONDS for began, ended in world.evidence.ills)
        if not (ill and cause.startswith(("Store", "MessagesLost"))):
            yield f"process {life} ended with {cause}"
