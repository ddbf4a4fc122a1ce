"""A world in which everything can be proven: an enclave, Intel, NVIDIA, and a NEAR AI cloud."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bot.attestation.trust import Trust
from bot.config.settings import Settings
from tests.e2e.running_bot import World, world
from tests.fakes.dstack_agent import SoftAgent, serving
from tests.fakes.near_ai import NearAi, near_ai
from tests.fakes.openai_server import Step, echo
from tests.fakes.pccs import pccs
from tests.fakes.web_server import WebServer


@dataclass(frozen=True, slots=True)
class ProvingWorld:
    """The sides of a proof, which outlive the bot.

    Attributes:
        here: Signal, and a folder.
        cloud: the model's endpoint.
        agent: the guest agent of the bot's machine, on `socket`.
        intel: the PCCS.
    """

    here: World
    cloud: NearAi
    agent: SoftAgent
    socket: Path
    intel: WebServer

    @property
    def trust(self) -> Trust:
        """Roots and services to trust in this world."""
        return self.cloud.trust

    def settings(self, policy: str = "warn", **overrides: Mapping[str, object]) -> Settings:
        """Return settings for a bot in the enclave; under `off` its model has no evidence.

        Only a policy that asks for evidence makes the bot trust this cloud's certificates.
        """
        sections: dict[str, dict[str, object]] = {
            "llm": {"base_url": self.cloud.base_url, "model": self.cloud.model},
            "access": {"messages_per_minute": 100_000},
            "attestation": {
                "dstack_socket": self.socket,
                "pccs_url": self.intel.url(""),
                "key_origin": "generated-in-tee",
                "model_policy": policy,
            },
        }
        if policy == "off":
            del sections["llm"]
        if policy == "require":
            sections["attestation"]["model_pins"] = self.cloud.pins.text()
        for section, values in overrides.items():
            sections.setdefault(section, {}).update(values)
        return self.here.settings(**sections)

    def words_at_the_cloud(self) -> str:
        """Return everything that went to the model, as it was on the wire."""
        return "\n".join(
            request.raw.decode() for request in self.cloud.received if request.method == "POST"
        )


@asynccontextmanager
async def proving_world(
    handler: Step = echo, *, tcb_status: str = "UpToDate"
) -> AsyncIterator[ProvingWorld]:
    async with (
        world() as here,
        near_ai(handler, tcb_status=tcb_status) as cloud,
        pccs(cloud.platform.collateral) as intel,
    ):
        agent = SoftAgent(cloud.platform)
        async with serving(agent, here.folder / "dstack.sock") as socket:
            yield ProvingWorld(here, cloud, agent, socket, intel)
