"""Policies decide who may talk."""

from typing import Literal

import pytest

from bot.chat.access import Access
from bot.config.settings import AccessSettings
from bot.signal.events import Person

ADA = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")

Policy = Literal["open", "allowlist", "pairing"]


def access(
    policy: Policy,
    *,
    allowed: frozenset[str] = frozenset(),
    admins: frozenset[str] = frozenset(),
) -> Access:
    return Access(AccessSettings(policy=policy, allowed=allowed, admins=admins))


@pytest.mark.parametrize("policy", ["open", "allowlist", "pairing"])
@pytest.mark.parametrize("known_by", [ADA.aci, ADA.number])
def test_allowed_people_and_admins_may_talk_under_every_policy(
    policy: Policy, known_by: str
) -> None:
    assert access(policy, allowed=frozenset({known_by})).may_talk(ADA)
    assert access(policy, admins=frozenset({known_by})).may_talk(ADA)


def test_number_makes_an_admin_only_if_signal_tells_it() -> None:
    by_number = access("pairing", admins=frozenset({"+15550100001"}))
    assert by_number.is_admin(ADA)
    hidden = Person(aci=ADA.aci)
    assert not by_number.is_admin(hidden)
    assert access("pairing", admins=frozenset({ADA.aci})).is_admin(hidden)
