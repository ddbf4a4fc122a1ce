"""How a store is kept small, and what it says about its size."""

from pathlib import Path

from tests.unit.stores import accept, answer, received, store_at

PAGE_BYTES = 4096


async def test_a_store_says_how_large_it_is_and_what_waits_in_it(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        empty = await store.sizes()
        await answer(store, received(1, "x" * 100 * PAGE_BYTES))
        waits = await accept(store, received(2))
        await store.answer(await accept(store, received(3)), ["a", "b"], outcome="command")
        full = await store.sizes()
        await store.clear(waits.message.chat)
        cleared = await store.sizes()
    assert (empty.waiting_messages, empty.waiting_sends, empty.free_bytes) == (0, 0, 0)
    assert (full.waiting_messages, full.waiting_sends) == (1, 2)
    assert full.file_bytes >= empty.file_bytes + 100 * PAGE_BYTES
    assert full.log_bytes >= 100 * PAGE_BYTES
    assert cleared.log_bytes == 0
    assert cleared.file_bytes == full.file_bytes
    assert cleared.free_bytes >= 100 * PAGE_BYTES
    assert cleared.disk_free_bytes > 0
