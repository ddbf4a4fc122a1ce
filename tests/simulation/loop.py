"""Event loop with a virtual clock and a network in memory; one seed makes every random choice.

The clock jumps to the next timer as soon as no callback is ready, so waiting costs no time. Two
histories with the same seed run the same callbacks in the same order.
"""
# The loop's methods take arguments of any type, which mypy finds too loose.
# mypy: disable-error-code="override"

import asyncio
import errno
import gc
import heapq
import itertools
import socket
from asyncio.transports import _FlowControlMixin
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, TypeVar

OWNER: Final[ContextVar[str]] = ContextVar("OWNER", default="")
"""Simulated process of the running code. It owns the servers and ends of connections it creates."""

RESET: Final = (errno.ECONNRESET, "Connection reset by peer")

T = TypeVar("T")
Address = Any  # host and port, or the path of a Unix socket
Item = bytes | Exception | None  # sent to the other end; None ends the stream


class Socket:
    """Address with the socket methods that transports, servers and their callers need."""

    family = socket.AF_UNIX  # has no options
    type = socket.SOCK_STREAM

    def __init__(self, address: Address) -> None:
        self.getsockname = lambda: address
        self.fileno = lambda: -1

    def setsockopt(self, *_: object) -> None:
        """Do nothing."""

    setblocking = listen = close = setsockopt


class Connection(_FlowControlMixin):
    """One end of a connection. Its callbacks run in the context of its creation.

    The kernel takes written bytes at once, so they arrive even if their writer is killed then.
    """

    peer: "Connection"  # the other end
    _maybe_pause_protocol: Callable[[], None]
    _maybe_resume_protocol: Callable[[], None]

    def __init__(self, network: "Network", protocol: Any, here: Address, there: Address) -> None:
        super().__init__({"sockname": here, "peername": there, "socket": Socket(here)}, network)
        self.owner, self.context = OWNER.get(), copy_context()
        self._network = network
        self._network.ends[self] = None
        self._protocol = protocol
        self._left = False  # the network
        self._lost = False  # connection_lost was called or is about to be
        self._paused = False
        self._inbox: deque[Item] = deque()
        self._arrives = 0.0  # time when the last item arrives at the peer
        self._size = 0  # bytes that the peer's protocol has not taken

    def is_closing(self) -> bool:
        return self._left

    def is_reading(self) -> bool:
        return not self._paused and not self._left

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._network.call_soon(self._read, context=self.context)

    def get_write_buffer_size(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._left:
            self._size += len(data)
            self._send(bytes(data))
            self._maybe_pause_protocol()

    def close(self, error: Exception | None = None) -> None:
        self.leave(error)
        if not self._lost:
            self._lost = True
            self._network.call_soon(self._protocol.connection_lost, error, context=self.context)

    abort = close

    def leave(self, farewell: Item) -> None:
        """Send a last item; then neither send nor receive, and tell the protocol nothing."""
        if not self._left:
            self._left = True
            self._protocol_paused = False
            del self._network.ends[self]
            self._send(farewell)

    def arrive(self, item: Item) -> None:
        """Take an item from the network."""
        if not self._left:
            self._inbox.append(item)
            self._read()
        elif isinstance(item, bytes):  # as Linux answers them
            self._send(ConnectionResetError(*RESET))

    def _send(self, item: Item) -> None:
        """Send this to the peer, after all that was sent before."""
        self._arrives = max(self._arrives, self._network.time() + self._network.delay())
        peer = self.peer
        self._network.call_at(self._arrives, peer.arrive, item, context=peer.context)

    def _read(self) -> None:
        """Give the protocol all that has arrived, unless it pauses."""
        while self._inbox and not self._paused and not self._left:
            item = self._inbox.popleft()
            if isinstance(item, bytes):
                self.peer._size -= len(item)
                self.peer.context.run(self.peer._maybe_resume_protocol)
                self._protocol.data_received(item)
            elif item is not None or not self._protocol.eof_received():
                self.close(item)


class Network(asyncio.BaseEventLoop):
    """Part of the loop that makes connections and breaks them."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.latency = (0.0005, 0.005)  # range of the seconds that each write takes
        self.ends: dict[Connection, None] = {}  # that are open, oldest first
        self._ports = itertools.count(40_000)
        self._servers: dict[Address, tuple[str, Context, Any, Any]] = {}
        self._connected: dict[socket.socket, Address] = {}
        self._dead: set[str] = set()
        self._blocked: set[str] = set()

    def delay(self) -> float:
        """Draw one latency."""
        return self.random.uniform(*self.latency)

    def kill(self, owner: str) -> None:
        """Kill the owner as `kill -9` does: from now on it reaches nobody, and nothing reaches it.

        The caller cancels its tasks. Some of them close a connection and wait until it is lost, so
        `close` and `abort` still call `connection_lost` of a dead owner's protocol.
        """
        self._dead.add(owner)
        for its_owner, _context, _factory, server in list(self._servers.values()):
            if its_owner == owner:
                server.close()
        for end in [end for end in self.ends if end.owner == owner]:
            end.leave(self.random.choice((None, ConnectionResetError(*RESET))))

    def revive(self, owner: str) -> None:
        """Let the owner connect and listen again; its old connections stay dead."""
        self._dead.discard(owner)

    def cut(self, owner: str) -> None:
        """Reset both ends of each connection, after separate latencies; later bytes are lost."""
        for end in [end for end in self.ends if end.owner == owner]:
            for side in (end, end.peer):
                reset = ConnectionResetError(*RESET)
                self.call_later(self.delay(), side.arrive, reset, context=side.context)

    def block(self, owner: str, blocked: bool) -> None:
        """Refuse connections to the owner's servers, or accept them again."""
        (self._blocked.add if blocked else self._blocked.discard)(owner)

    async def create_server(self, factory: Any, *address: Any, **options: Any) -> asyncio.Server:
        sock: Any = options.pop("sock", None)
        sock = sock or Socket((address[0], address[1] or next(self._ports)))
        return await super().create_server(factory, sock=sock, **options)

    async def create_unix_server(self, factory: Any, path: Any, **options: Any) -> asyncio.Server:
        return await self.create_server(factory, sock=Socket(str(path)), **options)

    def _start_serving(self, factory: Any, sock: Any, _: Any, server: Any, *more: object) -> None:
        address = sock.getsockname()
        if OWNER.get() in self._dead or address in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self._servers[address] = (OWNER.get(), copy_context(), factory, server)

    def _stop_serving(self, sock: Any) -> None:
        self._servers.pop(sock.getsockname(), None)
        sock.close()

    async def create_unix_connection(self, factory: Any, path: Any, **_: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as sock:
            await self.sock_connect(sock, str(path))
            return await self.create_connection(factory, sock=sock)

    async def sock_connect(self, sock: socket.socket, address: Address) -> None:
        await asyncio.sleep(self.delay())
        self._find(address)
        self._connected[sock] = address

    def _find(self, address: Address) -> tuple[Context, Any]:
        """Return the context and the protocol factory of the server at an address."""
        owner, context, factory, _ = self._servers.get(address, ("", None, None, None))
        if context is None or owner in self._blocked or OWNER.get() in self._dead:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return context, factory

    def _make_socket_transport(self, sock: Any, protocol: Any, waiter: Any, **_: Any) -> Connection:
        sock.close()
        waiter.set_result(None)
        address, here = self._connected.pop(sock), ("127.0.0.1", next(self._ports))
        context, factory = self._find(address)
        accepted = context.run(factory)
        end = Connection(self, protocol, here, address)
        end.peer = context.run(Connection, self, accepted, address, here)
        end.peer.peer = end
        end.peer.context.run(accepted.connection_made, end.peer)
        protocol.connection_made(end)
        return end


class SimulatedLoop(Network):
    """Event loop without a selector, threads, signals and TLS.

    Attributes:
        network: the loop itself.
        steps: callbacks run so far.
        at_step: a number of steps and a function. The function is called once, between two
            callbacks, when so many steps are done; an exception from it ends the run.
        faults: reports to the exception handler.
        wall_offset: change it to make the wall clock jump.
        thread_delay: range of the seconds until a function for a thread runs.
    """

    _ready: deque[Any]
    _stopping: bool

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.network: Network = self
        self.steps = 0
        self.at_step: tuple[int, Callable[[], None]] | None = None
        self.faults: list[dict[str, Any]] = []
        self.epoch, self.wall_offset, self._now = 1_700_000_000.0, 0.0, 0.0
        self.thread_delay = (0.0001, 0.001)
        self._timers: list[tuple[float, int, Any]] = []
        self._timer_numbers = itertools.count()
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def time(self) -> float:
        return self._now

    def wall(self) -> float:
        """Return the seconds since 1970 on the simulated wall clock."""
        return self.epoch + self._now + self.wall_offset

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    def _run_once(self) -> None:
        """Run the callbacks that are ready; if there are none, first jump to the next timer."""
        ready, timers = self._ready, self._timers
        while timers and (timers[0][0] <= self._now or not (ready or self._stopping)):
            when, _, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self._now = max(self._now, when)
                ready.append(handle)
        if not ready and not self._stopping:
            names = ", ".join(task.get_name() for task in self.unfinished_tasks())
            raise RuntimeError(f"Deadlock: nothing can happen any more. Waiting tasks: {names}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                self.steps += 1
                handle._run()
                if self.at_step is not None and self.steps >= self.at_step[0]:
                    act, self.at_step = self.at_step[1], None
                    act()

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake up."""

    def unfinished_tasks(self) -> list[asyncio.Task[Any]]:
        """Return the unfinished tasks in a repeatable order; `asyncio.all_tasks` has none."""
        tasks = sorted(asyncio.all_tasks(self), key=lambda task: task.get_name())
        # asyncio numbers the tasks without a name of their own: Task-1, Task-2, ...
        return sorted(tasks, key=lambda task: len(task.get_name()) * ("Task-" in task.get_name()))

    async def finish(self) -> None:
        """Cancel all other tasks, then close all connections."""
        tasks = [task for task in self.unfinished_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.wait([asyncio.gather(*tasks, return_exceptions=True)], timeout=60)
        for task in tasks:
            if not task.done() or not (task.cancelled() or task.exception() is None):
                self.faults.append({"message": "Task does not end as cancelled", "task": task})
        for end in list(self.ends):
            end.close()
        await asyncio.sleep(1)

    def run_in_executor(self, executor: object, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Call the function in the loop a moment later, unless its owner is killed before."""
        future = self.create_future()

        def work() -> None:
            if OWNER.get() in self._dead:
                return
            settle: Callable[[Any], None] = future.set_result
            try:
                result = func(*args)
            except Exception as error:
                settle, result = future.set_exception, error
            if not future.done():
                settle(result)

        self.call_later(self.random.uniform(*self.thread_delay), work)
        return future


@contextmanager
def simulation(seed: int) -> Iterator[SimulatedLoop]:
    """Provide a loop for one history; afterwards, end what is left of it and close the loop."""
    gc.disable()  # otherwise it would run finalizers at moments that depend on earlier histories
    with closing(SimulatedLoop(Random(seed))) as loop:
        try:
            yield loop
        finally:
            loop.at_step = None
            loop.run_until_complete(loop.finish())
            gc.collect(0)  # finds faults of the tasks that are garbage by now
            gc.enable()


def run(main: Coroutine[Any, Any, T], *, seed: int) -> T:
    """Run one history and return its result; `simulation` also shows the faults."""
    with simulation(seed) as loop:
        return loop.run_until_complete(main)
