"""Who may talk, by policy."""

from typing import Literal

import pytest

from bot.chat.access import Access
from bot.config.settings import AccessSettings
from bot.signal.events import IncomingMessage, Person
from conversation_store.models import ChatId

ADA = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")
BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b")

Policy = Literal["open", "allowlist", "pairing"]
Groups = Literal["mention", "always", "off"]


def access(
    policy: Policy,
    *,
    allowed: frozenset[str] = frozenset(),
    admins: frozenset[str] = frozenset(),
    groups: Groups = "mention",
) -> Access:
    return Access(
        AccessSettings(
            policy=policy, allowed=allowed, admins=admins, groups=groups, messages_per_minute=20
        )
    )


def message(*, group: bool = False, addresses_bot: bool = False) -> IncomingMessage:
    chat = ChatId.group("x") if group else ChatId.direct("x")
    return IncomingMessage("+15550100000", chat, ADA, 1, "hello", addresses_bot)


def test_everybody_may_talk_to_an_open_bot() -> None:
    assert access("open").may_talk(ADA)


@pytest.mark.parametrize("policy", ["allowlist", "pairing"])
def test_a_stranger_may_not_talk_otherwise(policy: Policy) -> None:
    assert not access(policy).may_talk(ADA)


@pytest.mark.parametrize("policy", ["open", "allowlist", "pairing"])
@pytest.mark.parametrize("known_by", [ADA.aci, ADA.number])
def test_who_is_allowed_or_an_admin_may_talk_under_every_policy(
    policy: Policy, known_by: str
) -> None:
    assert access(policy, allowed=frozenset({known_by})).may_talk(ADA)
    assert access(policy, admins=frozenset({known_by})).may_talk(ADA)


def test_an_admin_is_known_by_a_number_only_where_signal_tells_it() -> None:
    by_number = access("pairing", admins=frozenset({"+15550100001"}))
    assert by_number.is_admin(ADA)
    hidden = Person(aci=ADA.aci)
    assert not by_number.is_admin(hidden)
    assert access("pairing", admins=frozenset({ADA.aci})).is_admin(hidden)


def test_who_was_let_in_by_a_code_may_talk_and_is_no_admin() -> None:
    pairing = access("pairing")
    pairing.paired = frozenset({ADA.aci})
    assert pairing.may_talk(ADA)
    assert not pairing.may_talk(BEN)
    assert not pairing.is_admin(ADA)


def test_codes_let_nobody_in_under_an_allowlist() -> None:
    listed = access("allowlist")
    listed.paired = frozenset({ADA.aci})
    assert not listed.may_talk(ADA)


def test_everything_in_private_is_meant_for_the_bot() -> None:
    assert access("open", groups="off").addressed(message())


@pytest.mark.parametrize(
    ("groups", "addresses_bot", "addressed"),
    [
        ("mention", True, True),
        ("mention", False, False),
        ("always", False, True),
        ("off", True, False),
    ],
)
def test_what_is_meant_for_the_bot_in_a_group_is_a_setting(
    groups: Groups, addresses_bot: bool, addressed: bool
) -> None:
    said = message(group=True, addresses_bot=addresses_bot)
    assert access("open", groups=groups).addressed(said) is addressed
