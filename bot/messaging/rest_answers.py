"""What signal-cli-rest-api answers, parsed."""

from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, TypeAdapter

from bot.messaging.account import Group
from bot.messaging.events import Account
from bot.messaging.signal_answers import Address, names_of


class About(BaseModel):
    """The server itself."""

    version: str
    mode: str


def _address(value: object) -> object:
    """Servers that do not know `expand` list numbers, or uuids where there is none."""
    return {"number": value} if isinstance(value, str) else value


_People = list[Annotated[Address, BeforeValidator(_address)]]


class _Permissions(BaseModel):
    send_messages: str | None = None


class GroupRow(BaseModel):
    """What is asked about a group."""

    name: str | None = None
    member: bool = False
    members: _People = []
    admins: _People = []
    pending_invites: _People = []
    permissions: _Permissions = _Permissions()


class Sent(BaseModel):
    """What was sent; the server writes its timestamp as a text."""

    timestamp: int


ABOUT: Final = TypeAdapter(About)
SENT: Final = TypeAdapter(Sent)
NUMBERS: Final = TypeAdapter(list[str])
GROUP: Final[TypeAdapter[GroupRow | None]] = TypeAdapter(GroupRow | None)


def group_of(row: GroupRow, bot: Account) -> Group:
    """Return what a group is to the bot."""
    return Group(
        members=names_of(row.members),
        admins=names_of(row.admins),
        is_member=row.member,
        is_invited=not names_of(row.pending_invites).isdisjoint(bot.names),
        only_admins_write=row.permissions.send_messages == "only-admins",
        name=row.name or "",
    )
