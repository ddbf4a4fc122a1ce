"""Reads `/metrics` as Prometheus does."""

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bot.observability import metrics

PREFIX = f"{metrics.PREFIX}_"


@dataclass(frozen=True, slots=True)
class Exposition:
    """Answer of `/metrics`."""

    text: str

    @property
    def samples(self) -> Iterator[Sample]:
        for family in text_string_to_metric_families(self.text):
            yield from family.samples

    def labels(self) -> dict[str, dict[str, set[str]]]:
        """Return the labels of every name, and their values."""
        found: dict[str, dict[str, set[str]]] = {}
        for sample in self.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
        return found

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one of the bot's own series; KeyError if it does not exist."""
        for sample in self.samples:
            if sample.name == PREFIX + name and sample.labels == labels:
                return float(sample.value)
        raise KeyError(name, labels)


def now() -> Exposition:
    """Return the metrics of this process."""
    return Exposition(generate_latest().decode())
