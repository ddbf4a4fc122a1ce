"""Virtual time, and a network in memory with kills and cuts, for one seed or for some."""

import asyncio

import aiohttp
import pytest
from aiohttp import web

from bot.signal.json_rpc import JsonRpcConnection
from tests.simulation.loop import OWNER, SimulatedLoop, run, simulation

SEEDS = range(20)
KEPT: list[object] = []  # streams of the last history; the end of the history closes them
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def here() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


async def pair() -> tuple[Streams, Streams]:
    """Return both sides of a connection from the owner "client" to the owner "server"."""
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    OWNER.set("server")
    await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 7000)
    OWNER.set("client")
    both = (await asyncio.open_connection("127.0.0.1", 7000), await accepted.get())
    KEPT[:] = both
    return both


async def all_of(reader: asyncio.StreamReader) -> bytes:
    """Return all that arrives, with an exclamation mark if the connection is reset."""
    received = bytearray()
    try:
        while data := await reader.read(1000):
            received += data
    except ConnectionResetError:
        received += b"!"
    return bytes(received)


def test_timers_follow_the_virtual_clock_in_the_order_of_their_creation() -> None:
    async def main() -> None:
        order: list[int] = []
        for number in range(20):
            here().call_at(3600.0, order.append, number)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 3600)
        here().wall_offset = -100.0
        assert (here().time(), here().wall() - here().epoch) == (3600.0, 3500.0)
        assert order == list(range(20))

    run(main(), seed=1)


def test_a_wait_that_cannot_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"Deadlock.*Task-"):
        run(asyncio.Event().wait(), seed=1)


def test_functions_for_threads_run_in_the_loop_unless_their_owner_is_killed() -> None:
    async def main() -> None:
        OWNER.set("bot")
        assert await asyncio.to_thread(OWNER.get) == "bot"
        await asyncio.wait([asyncio.create_task(asyncio.to_thread(divmod, 1, 0))])
        here().run_in_executor(None, pytest.fail)
        here().network.kill("bot")
        await asyncio.sleep(1)

    with simulation(1) as loop:
        loop.run_until_complete(main())
    assert [fault["message"] for fault in loop.faults] == ["Task exception was never retrieved"]


def test_aiohttp_talks_to_itself() -> None:
    async def greet(request: web.Request) -> web.Response:
        return web.Response(text=await request.text())

    async def websocket(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(await socket.receive_str())
        return socket

    async def main() -> None:
        app = web.Application()
        app.add_routes([web.post("/", greet), web.get("/ws", websocket)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as session:
            async with session.post(url, data="x" * 300_000) as response:
                assert await response.text() == "x" * 300_000
            async with session.ws_connect(f"{url}/ws") as socket:
                await socket.send_str("abc")
                assert await socket.receive_str() == "abc"
            await runner.cleanup()
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(url)

    with simulation(1) as loop:
        loop.run_until_complete(main())
        assert loop.faults == []


def test_lines_that_arrive_before_a_reset_are_read_after_a_pause() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(2):
            writer.write(b'{"method": "receive", "params": %d}\n' % number)
            await asyncio.sleep(1)

    async def main() -> None:
        OWNER.set("bot")
        await asyncio.start_unix_server(serve, "/run/signal")
        seen: list[object] = []
        async with JsonRpcConnection.connect(
            "unix:/run/signal", lambda _, n: seen.append(n)
        ) as bot:
            await asyncio.sleep(0.5)
            bot.pause_reading()
            await asyncio.sleep(1)
            here().network.cut("bot")
            await asyncio.sleep(1)
            assert (seen, bot.lost.is_set()) == ([0], False)
            bot.resume_reading()
            await bot.lost.wait()
            assert seen == [0, 1]

    run(main(), seed=1)


def test_owners_that_are_blocked_or_killed_are_unreachable() -> None:
    async def is_refused() -> bool:
        try:
            KEPT.append(await asyncio.open_connection("127.0.0.1", 7000))
        except ConnectionRefusedError:
            return True
        return False

    async def main() -> None:
        await pair()
        here().network.block("server", True)
        assert await is_refused()
        here().network.block("server", False)
        assert not await is_refused()
        here().network.kill("server")
        assert await is_refused()
        here().network.revive("server")
        await pair()
        here().network.kill("client")
        assert await is_refused()

    run(main(), seed=1)


def test_a_writer_waits_for_its_reader() -> None:
    async def main() -> None:
        (reader, _), (_, writer) = await pair()
        writer.write(b"x" * 300_000)
        writer.write(b"x" * 300_000)
        draining = asyncio.create_task(writer.drain())
        assert await asyncio.wait([draining], timeout=60) == (set(), {draining})
        assert len(await reader.readexactly(600_000)) == 600_000
        await draining

    run(main(), seed=1)


def test_bytes_of_a_connection_arrive_in_order() -> None:
    async def main() -> None:
        (_, writer), (reader, _) = await pair()
        for number in range(100):
            writer.write(bytes([number]))
            await asyncio.sleep(0.001 * (number % 3))
        writer.close()
        assert await reader.read() == bytes(range(100))

    for seed in SEEDS:
        run(main(), seed=seed)


def test_bytes_written_before_a_kill_arrive_and_later_ones_do_not() -> None:
    async def main() -> bytes:
        (reader, writer), (their_reader, their_writer) = await pair()
        writer.write(b"before")
        here().network.kill("client")
        writer.write(b"after")
        their_writer.write(b"answer")
        received = await all_of(their_reader)
        with pytest.raises(ConnectionResetError):  # the answer is for a process that is gone
            await their_writer.wait_closed()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
        return received

    assert {run(main(), seed=seed) for seed in SEEDS} == {b"before", b"before!"}


def test_a_cut_loses_some_bytes_on_their_way_and_resets_both_ends() -> None:
    async def main() -> bytes:
        (reader, writer), (their_reader, _) = await pair()
        writer.write(b"late")
        here().network.cut("client")
        return b" ".join(await asyncio.gather(all_of(reader), all_of(their_reader)))

    assert {run(main(), seed=seed) for seed in SEEDS} == {b"! !", b"! late!"}


def history(seed: int) -> list[tuple[str, float, int]]:
    """Play a history with connections, threads and a cut at a step; return what happened when."""
    events: list[tuple[str, float, int]] = []

    def note(event: str) -> None:
        events.append((event, loop.time(), loop.steps))
        if event == "cut":
            loop.network.cut("even")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        note((await all_of(reader)).decode())
        writer.close()

    async def visit(number: int) -> None:
        OWNER.set("odd" if number % 2 else "even")
        _, writer = await asyncio.open_connection("127.0.0.1", 7000)
        for _ in range(5):
            writer.write(b"%d" % number)
            await asyncio.to_thread(note, f"thread {number}")
        writer.close()

    async def main() -> None:
        await asyncio.start_server(serve, "127.0.0.1", 7000)
        loop.at_step = (100, lambda: note("cut"))
        await asyncio.wait([asyncio.create_task(visit(number)) for number in range(6)], timeout=9)

    with simulation(seed) as loop:
        loop.run_until_complete(main())
    return events


def test_each_seed_has_its_own_history() -> None:
    assert history(1) == history(1)
    histories = [history(seed) for seed in SEEDS]
    assert len({tuple(name for name, _, _ in events) for events in histories}) == len(SEEDS)
    assert {steps for events in histories for name, _, steps in events if name == "cut"} == {100}
