"""Troubles of the bot's account that only the operator can end.

A running signal-cli sends no notification if Signal drops an account or refuses its version: it
only writes lines to its log, and later requests fail. So the bot searches the text of every error,
and the log of a signal-cli that it started itself. The phrases are those of signal-cli 0.13 and
0.14.
"""

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, Final


class AccountTrouble(StrEnum):
    """Trouble with the account, as a sentence for the operator."""

    ABSENT = (
        "SIGNAL__PHONE_NUMBER is not registered there."
        " Register or link it: signal-tee-bot register, or signal-tee-bot link."
    )
    DROPPED = (
        "Signal has dropped the account of SIGNAL__PHONE_NUMBER. Nothing stored is lost. Register"
        " it again: signal-tee-bot register."
    )
    UNLINKED = (
        "The phone has unlinked the bot, or Signal has because it was off for a month. Nothing"
        " stored is lost. Link it again: signal-tee-bot link."
    )
    UNCHECKED = "signal-cli has the account and could not ask Signal about it. Is there a network?"
    OUTDATED = (
        "Signal refuses this version of signal-cli. Update it: signal-tee-bot signal-cli update;"
        " or, if it runs elsewhere, install its newest release there."
    )


_WORDS: Final = re.compile(
    r"(?P<OUTDATED>StatusCode: 499|DeprecatedVersion|too old for the Signal-Server|AppExpired"
    r"|application is too old)"
    r"|(?P<DROPPED>\[40[13]\] Authorization failed|AuthorizationFailed|DeviceDeregistered"
    r"|(?m:^|\")User \+\d{7,15} is not registered\.|number registered elsewhere"
    r"|Specified account does not exist|Number not registered with JSON-RPC)"
)


def trouble_in(words: str) -> AccountTrouble | None:
    """Return the trouble that an error or a line of signal-cli's log tells."""
    found = _WORDS.search(words)
    return None if found is None else AccountTrouble[str(found.lastgroup)]


def trouble_of_missing(data_dir: Path | None, number: str) -> AccountTrouble:
    """Tell why signal-cli does not list an account, by its own files if the bot may read them.

    signal-cli leaves out accounts that it could not check with Signal, also without a network.
    """
    try:
        account = _account_file(data_dir, number) if data_dir is not None else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        account = None
    if account is None:
        return AccountTrouble.ABSENT
    if account.get("registered") is True:
        return AccountTrouble.UNCHECKED
    return AccountTrouble.DROPPED if account.get("deviceId") == 1 else AccountTrouble.UNLINKED


def _account_file(data_dir: Path, number: str) -> dict[str, Any] | None:
    """Return signal-cli's own file about an account, which `data/accounts.json` names."""
    folder = data_dir / "data"
    for row in json.loads((folder / "accounts.json").read_bytes())["accounts"]:
        if row["number"] == number:
            account = json.loads((folder / Path(row["path"]).name).read_bytes())
            return account if isinstance(account, dict) else None
    return None
