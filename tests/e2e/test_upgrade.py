"""A store that the version before this schema has left: what waits in it is answered and sent."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from bot.dispatch.turns.router import NO_WORDS
from conversation_store.migrations import m0001_initial, m0002_approvals, m0003_proofs
from conversation_store.models import ChatId
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_approvals import notes, with_notes
from tests.e2e.test_conversation import BEN
from tests.fakes.signal_side import ADA, BOT

ASKED_AT: Final = 1_795_000_000_000

LEFT: Final = """
    INSERT INTO inbox VALUES
      (1, :bot, :ada, 1000, 'message', 'direct:' || :ada,
       '{"text": "note: buy milk", "author_number": "+15550100001", "author_name": "Ada",
         "attachments": 0, "quote_timestamp": null}', :now, 'waiting', NULL),
      (2, :bot, :ben, 1000, 'message', 'direct:' || :ben, NULL, :now, 'done', 'command'),
      (3, :bot, :ben, 2000, 'message', 'direct:' || :ben,
       '{"text": "look", "author_number": null, "author_name": "Ben",
         "attachments": 2, "quote_timestamp": null}', :now, 'waiting', NULL),
      (4, :bot, :ben, 3000, 'message', 'direct:' || :ben,
       '{"text": "and why?", "author_number": null, "author_name": "Ben",
         "attachments": 0, "quote_timestamp": 77}', :now, 'waiting', NULL),
      (5, :bot, :ben, 4000, 'message', 'direct:' || :ben,
       '{"text": "", "author_number": null, "author_name": null,
         "attachments": 1, "quote_timestamp": null}', :now, 'waiting', NULL);
    INSERT INTO turns (id, chat, state, attempts, started_at) VALUES
      (1, 'direct:' || :ada, 'running', 1, :now);
    INSERT INTO messages VALUES
      (1, 1, 'user', '[2026-11-18 11:06 UTC] note: buy milk', NULL, NULL, :now),
      (2, 1, 'assistant', NULL, '[{"id": "call_0", "name": "notes_write",
        "arguments": "{\\"text\\": \\"buy milk\\"}"}]', NULL, :now),
      (3, 1, 'tool', NULL, NULL, 'call_0', :now);
    INSERT INTO approvals VALUES
      (3, 'direct:' || :ada, :ada,
       '9be152534e193fbda3ee30ad60c1a240f3c6f676a14df3bcd01c6caad3af0a22',
       'open', :asked_at, :now + 300000, NULL, NULL);
    INSERT INTO outbox VALUES
      (1, 2, 0, 'direct:' || :ben, 'The proof.', 'waiting', 0, :now, NULL);
    INSERT INTO attachments VALUES (1, 1, 'proof.json', 'application/json', x'7B7D');
    PRAGMA user_version = 3
"""


def leave_store(path: Path) -> None:
    """Write a store as it was left: the rows are those of a bot that was killed."""
    values = {
        "bot": BOT.number,
        "ada": ADA.aci,
        "ben": BEN.aci,
        "asked_at": ASKED_AT,
        "now": time.time_ns() // 1_000_000,
    }
    with closing(sqlite3.connect(path)) as database:
        for migration in (m0001_initial, m0002_approvals, m0003_proofs):
            for statement in migration.STATEMENTS:
                database.execute(statement)
        for statement in LEFT.split(";\n"):
            database.execute(statement, values)
        database.commit()


async def test_what_the_version_before_has_left_is_answered_and_sent_by_this_one() -> None:
    async with world() as here:
        settings = with_notes(here)
        leave_store(settings.store.path)
        async with running_bot(settings):
            await here.signal.react("👍", ASKED_AT)
            await here.signal.until(lambda: len(here.answers()) == 5)
        assert notes(here) == "buy milk\n"
    to_ben = [sent for sent in here.signal.sent if sent.chat == ChatId.direct(BEN.aci)]
    proof, look, why, no_words = to_ben
    assert (proof.text, [file.data for file in proof.attachments]) == ("The proof.", [b"{}"])
    assert look.text.endswith("] look")
    assert why.text.endswith("[in reply to your message] and why?")
    assert no_words.text == NO_WORDS
    (to_ada,) = [sent for sent in here.signal.sent if sent not in to_ben and sent.text[0] != "🔧"]
    assert to_ada.text.endswith("note: buy milk")
