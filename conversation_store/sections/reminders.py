"""Reminders and scheduled questions: kept until their time, then said once.

What is due becomes, in one transaction, a message that goes out (or, a question, one that has come
in) and is closed or moved to its next date. So a crash leaves either, never both and never none.
"""

from collections.abc import Sequence

from conversation_store import inbox, outgoing, reminders
from conversation_store.connections import Execute
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    DueReminder,
    FurtherDate,
    OutgoingMessage,
    ReceivedKind,
    ReceivedMessage,
    StoredReminder,
)
from conversation_store.sections.section import Section, reads, writes


class ReminderStore(Section):
    """The reminders of everybody."""

    # For tools and commands

    @reads
    def zone_of(self, execute: Execute, person: str) -> str | None:
        """Return a person's time zone; None as long as nobody has told it."""
        rows = list(execute("SELECT zone FROM clocks WHERE person = ?", (person,)))
        return next((zone for (zone,) in rows), None)

    @reads
    def local_ones(self, execute: Execute, person: str) -> tuple[StoredReminder, ...]:
        """Return what a person has that comes at a local time, wherever it belongs."""
        return reminders.local_of_person(execute, person)

    @writes
    def set_zone(
        self, execute: Execute, person: str, zone: str, changes: Sequence[tuple[int, str, int]]
    ) -> None:
        """Remember a person's time zone, and when reminders come by it.

        Args:
            execute: runs a statement.
            person: ACI.
            zone: a name of the IANA database.
            changes: row, local time and moment (ms) of each; one that has another local time by now
                has gone on to its next date, which was found in the zone before.
        """
        execute(
            "INSERT INTO clocks (person, zone) VALUES (?, ?)"
            " ON CONFLICT (person) DO UPDATE SET zone = excluded.zone",
            (person, zone),
        )
        for reminder, local_at, due_at in changes:
            execute(
                "UPDATE reminders SET due_at = ?"
                " WHERE id = ? AND local_at = ? AND state = 'waiting'",
                (due_at, reminder, local_at),
            )

    @writes
    def add(
        self,
        execute: Execute,
        *,
        person: str,
        chat: str,
        turn: int | None,
        call: str,
        is_question: bool,
        text: str,
        local_at: str | None,
        repeat: str | None,
        due_at: int,
        at_most: int,
    ) -> StoredReminder | None:
        """Add a reminder; a call that has added one gets that one again.

        Who asked for it is what the message of its turn says, which still waits for its answer.

        Args:
            execute: runs a statement.
            person: ACI.
            chat: where it is said.
            turn: in which it was asked for.
            call: by which call of the turn.
            is_question: the bot asks itself its text, and says the answer.
            text: what is said or asked.
            local_at: ISO 8601 without an offset; None: it comes at a moment.
            repeat: an RRULE; None: it comes once.
            due_at: when it comes first, in ms.
            at_most: how many a person may have waiting.

        Returns:
            the reminder; None where the person has `at_most` already, or the message is gone.
        """
        before = reminders.of_call(execute, turn, call)
        if before is not None:
            return before
        if reminders.count_waiting(execute, person) >= at_most:
            return None
        rows = list(
            execute(
                "INSERT INTO reminders (person, number, kind, state, account, chat, person_name,"
                " person_number, text, local_at, repeat, due_at, created_at, timer_ms, turn_id,"
                " call_id) SELECT ?1, coalesce((SELECT last_number FROM clocks"
                " WHERE person = ?1), 0) + 1, ?2, 'waiting', account, ?3,"
                " iif(?4, json_extract(body, '$.author_name'), NULL),"
                " json_extract(body, '$.author_number'), ?5, ?6, ?7, ?8, ?9,"
                " (SELECT min(expires_at - received_at) FROM inbox AS piece"
                " WHERE piece.id = ?10 OR piece.turn_id = ?10), ?10, ?11"
                " FROM inbox WHERE id = ?10 AND state = 'waiting' RETURNING id, number",
                (
                    *(person, "question" if is_question else "reminder"),
                    *(chat, ChatId.parse(chat).is_group),
                    *(text, local_at, repeat, due_at, self._context.now_ms(), turn, call),
                ),
            )
        )
        for reminder, number in rows:
            execute(
                "INSERT INTO clocks (person, last_number) VALUES (?, ?)"
                " ON CONFLICT (person) DO UPDATE SET last_number = excluded.last_number",
                (person, number),
            )
            if turn is not None:
                reminders.comes_from(execute, reminder, turn, text)
            return reminders.find(execute, reminder)
        return None

    @reads
    def of(self, execute: Execute, person: str, chat: str) -> tuple[StoredReminder, ...]:
        """Return what a person has that may be told in a chat, by when it comes.

        In a group only what belongs there; in private everything.
        """
        return reminders.of_person(execute, person, ChatId.parse(chat))

    @writes
    def tell(
        self, execute: Execute, person: str, chat: str, *, turn: int | None
    ) -> tuple[StoredReminder, ...]:
        """Return what `of` does, to a turn: it holds their words then, so it goes with them."""
        told = reminders.of_person(execute, person, ChatId.parse(chat))
        reminders.tell(execute, told, turn, self._context.now_ms())
        return told

    @reads
    def are_in(self, execute: Execute, chat: ChatId) -> bool:
        """Whether anything is still to come in a chat."""
        return reminders.are_in(execute, chat)

    async def cancel(
        self,
        person: str,
        chat: str,
        number: int,
        *,
        turn: int | None = None,
        call: str | None = None,
    ) -> StoredReminder | None:
        """Forget one of them, and return it; None where there is none that may be told there.

        A call (of a turn) that has cancelled one gets that one again, without its text.
        """
        cancelled = await self._cancel(person, chat, number, turn=turn, call=call)
        if cancelled is not None:
            self._database.scrub_soon()
        return cancelled

    @writes
    def _cancel(
        self,
        execute: Execute,
        person: str,
        chat: str,
        number: int,
        *,
        turn: int | None,
        call: str | None,
    ) -> StoredReminder | None:
        for reminder in reminders.of_person(execute, person, ChatId.parse(chat)):
            if reminder.number == number:
                now = self._context.now_ms()
                reminders.cancel(execute, reminder, turn_id=turn, call=call, now_ms=now)
                return reminder
        return reminders.cancelled_by(execute, person, number, turn, call)

    async def done(self, person: str, chat: ChatId, signal_timestamp: int) -> bool:
        """Mark as done what a message of the bot reminded a person of.

        Args:
            person: ACI; nobody else's counts.
            chat: where the message is.
            signal_timestamp: Signal's, of the message.

        Returns:
            whether it was one.
        """
        reminder = await self.sent_as(chat, signal_timestamp)
        if reminder is None or reminder.person != person:
            return False
        await self._done(reminder)
        self._database.scrub_soon()
        return True

    @reads
    def sent_as(
        self, execute: Execute, chat: ChatId, signal_timestamp: int
    ) -> StoredReminder | None:
        """Return what a message of the bot reminded somebody of; None where it is not known."""
        return reminders.sent_as(execute, chat, signal_timestamp)

    @writes
    def _done(self, execute: Execute, reminder: StoredReminder) -> None:
        reminders.done(execute, reminder, self._context.now_ms())

    # When their time has come

    @reads
    def due(
        self, execute: Execute, now_ms: int, *, after: tuple[int, int], at_most: int
    ) -> tuple[DueReminder, ...]:
        """Return what is due and comes behind a (due time, row), in that order."""
        return reminders.due(execute, now_ms, after, at_most)

    @reads
    def next_due(self, execute: Execute, now_ms: int) -> int | None:
        """Return when the next one is due that is not yet, in ms; None without any."""
        return reminders.next_due(execute, now_ms)

    @reads
    def find(self, execute: Execute, reminder: int) -> StoredReminder | None:
        """Return a reminder that waits."""
        return reminders.find(execute, reminder)

    async def deliver(
        self, reminder: StoredReminder, text: str, further: FurtherDate | None, now_ms: int
    ) -> OutgoingMessage | None:
        """Let a reminder become a message that goes out, and wait for its next date or no more.

        Args:
            reminder: as it was read.
            text: the whole message.
            further: when it comes again.
            now_ms: the time.

        Returns:
            the message; None where the reminder was cancelled or moved meanwhile.
        """
        return await self._deliver(reminder, text, further, now_ms)

    @writes
    def _deliver(
        self,
        execute: Execute,
        reminder: StoredReminder,
        text: str,
        further: FurtherDate | None,
        now_ms: int,
    ) -> OutgoingMessage | None:
        if not reminders.is_still(execute, reminder):
            return None
        expires_at = None if reminder.timer_ms is None else now_ms + reminder.timer_ms
        note = outgoing.note(
            execute,
            chat=reminder.chat,
            text=text,
            now_ms=self._context.now_ms(),
            expires_at=expires_at,
        )
        reminders.was_sent_as(execute, reminder.id, note.id)
        if further is not None:
            reminders.go_on(execute, reminder, further)
        elif self._context.retention_days and not reminder.is_question:
            reminders.keep_delivered(execute, reminder.id, expires_at, now_ms)
        else:
            reminders.end(execute, reminder.id, now_ms)
        return note

    @writes
    def ask(
        self,
        execute: Execute,
        question: StoredReminder,
        further: FurtherDate | None,
        now_ms: int,
    ) -> AcceptedMessage | None:
        """Let a question become a message that owes an answer, and wait for its next date.

        Args:
            execute: runs a statement.
            question: as it was read.
            further: when it comes again; None: no more.
            now_ms: the time.

        Returns:
            the message; None where the question was cancelled or moved meanwhile.
        """
        if not reminders.is_still(execute, question):
            return None
        accepted = inbox.insert(
            execute,
            ReceivedMessage(
                question.account,
                question.person,
                reminders.free_timestamp(execute, question),
                question.chat,
                question.text,
                now_ms,
                sent_at=now_ms,
                kind=ReceivedKind.SCHEDULED,
                author_number=question.person_number,
                author_name=question.person_name,
                expires_at=None if question.timer_ms is None else now_ms + question.timer_ms,
            ),
        )
        if accepted is None:
            return None
        reminders.was_asked_as(execute, question.id, accepted.id)
        if further is not None:
            reminders.go_on(execute, question, further)
        else:
            reminders.end(execute, question.id, now_ms)
        return accepted

    @writes
    def pass_over(
        self, execute: Execute, reminder: StoredReminder, further: FurtherDate | None
    ) -> None:
        """Let a reminder wait for its next date, or no more, without saying anything."""
        if not reminders.is_still(execute, reminder):
            return
        if further is not None:
            reminders.go_on(execute, reminder, further)
        else:
            reminders.end(execute, reminder.id, self._context.now_ms())
