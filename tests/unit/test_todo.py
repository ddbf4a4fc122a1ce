"""The list of a turn as a person sees it, for any input of the model."""

import json

from hypothesis import given
from hypothesis import strategies as st

from bot.chat.plan import MAX_ITEMS, MAX_SHOWN_BYTES, TODO, Item, last_shown, shown
from conversation_store.models import Message, Role, ToolCall


def asking(*items: object, id_: str = "call_0") -> Message:
    """A message of a model that sends a list."""
    return asking_with(json.dumps({"items": items}), id_)


def asking_with(arguments: str, id_: str = "call_0") -> Message:
    return Message(Role.ASSISTANT, None, (ToolCall(id_, TODO, arguments),))


def test_item_stays_on_one_line_without_control_characters() -> None:
    (line,) = shown([Item(text="look\n☑ pay\u202e\u2028now")])
    assert line == "☐ look ☑ pay⟨U+202E⟩ now"


@given(
    st.lists(
        st.builds(Item, text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=500)),
        max_size=MAX_ITEMS,
    )
)
def test_list_fits_into_a_message_with_a_line_for_each_item(items: list[Item]) -> None:
    lines = shown(items)
    assert len(lines) == len(items)
    assert all(len(line.splitlines()) == 1 for line in lines)
    assert sum(len(line.encode()) for line in lines) <= MAX_SHOWN_BYTES


def test_last_readable_list_is_shown() -> None:
    first = asking({"text": "look", "state": "doing"})
    second = asking({"text": "look", "state": "done"})
    for unreadable in ("no JSON", "[]", '{"items": "all"}', '{"items": [{"text": ""}]}'):
        assert last_shown([first, second, asking_with(unreadable)]) == ("☑ look",)
    assert last_shown([first, second, asking()]) == ()
    assert last_shown([]) == ()


def test_steps_that_are_mere_text_are_items() -> None:
    assert last_shown([asking_with('{"items": ["buy carrots", "wash"]}')]) == (
        "☐ buy carrots",
        "☐ wash",
    )
