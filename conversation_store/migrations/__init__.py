"""The schema's history: numbered, append-only. A released migration is never changed.

Migration N of the list takes a database from `user_version` N-1 to N, inside one transaction.
"""

from collections.abc import Callable
from typing import Final

from conversation_store.connections import Execute
from conversation_store.errors import StoreUnreadable
from conversation_store.migrations import (
    m0001_initial,
    m0002_approvals,
    m0003_proofs,
    m0004_good_guest,
    m0005_pairings,
    m0006_doubts,
    m0007_unnamed_sends,
    m0008_chat_indexes,
    m0009_paired_admins,
    m0010_several_models,
    m0011_token_usage,
    m0012_grants,
    m0013_images_of_results,
    m0014_quorum,
    m0015_second_thoughts,
    m0016_memory,
    m0017_reminders,
    m0018_helpers,
    m0019_questions,
    m0020_catch_up,
    m0021_progress_edits,
    m0022_queued_sends,
    m0023_call_outcomes,
    m0024_polls,
    m0025_reminded,
)

MIGRATIONS: Final[tuple[Callable[[Execute], None], ...]] = (
    m0001_initial.apply,
    m0002_approvals.apply,
    m0003_proofs.apply,
    m0004_good_guest.apply,
    m0005_pairings.apply,
    m0006_doubts.apply,
    m0007_unnamed_sends.apply,
    m0008_chat_indexes.apply,
    m0009_paired_admins.apply,
    m0010_several_models.apply,
    m0011_token_usage.apply,
    m0012_grants.apply,
    m0013_images_of_results.apply,
    m0014_quorum.apply,
    m0015_second_thoughts.apply,
    m0016_memory.apply,
    m0017_reminders.apply,
    m0018_helpers.apply,
    m0019_questions.apply,
    m0020_catch_up.apply,
    m0021_progress_edits.apply,
    m0022_queued_sends.apply,
    m0023_call_outcomes.apply,
    m0024_polls.apply,
    m0025_reminded.apply,
)


EMPTY: Final = 0
"""What a file says that was never a store."""


def version_of(execute: Execute) -> int:
    """Return the number of the migration that a file has come to."""
    ((found,),) = execute("PRAGMA user_version")
    return int(found)


def migrate(execute: Execute) -> int:
    """Bring the schema up to date and return how many migrations that took.

    Raises:
        StoreUnreadable: the file was made by a newer version of the program.
    """
    refuse_newer(execute)
    found = version_of(execute)
    for apply in MIGRATIONS[found:]:
        apply(execute)
    execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    return len(MIGRATIONS) - found


def refuse_newer(execute: Execute) -> None:
    """Leave the schema alone and refuse one that this version does not know.

    Raises:
        StoreUnreadable: the file was made by a newer version of the program.
    """
    found = version_of(execute)
    if found > len(MIGRATIONS):
        raise StoreUnreadable(
            f"the store has schema {found}, this version knows {len(MIGRATIONS)}: update the bot"
        )


def require_current(execute: Execute) -> None:
    """Leave the schema alone and refuse another one than this version's.

    Raises:
        StoreUnreadable: the file was made by another version of the program.
    """
    refuse_newer(execute)
    if version_of(execute) < len(MIGRATIONS):
        raise StoreUnreadable("the store is from an earlier version: start the bot once")
