"""What the demo does, all in one place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from remanence.errors import InputError
from remanence.training import Recipe


def _training() -> Recipe:
    return Recipe(epochs=35, learning_rate=0.05, batch_size=32, weight_decay=1e-3)


@dataclass(frozen=True)
class DemoSettings:
    """Every number that shapes the demo's result."""

    name: str = "full"
    seeds: int = 5
    width: int = 16
    training: Recipe = field(default_factory=_training)
    checkpoints: int = 35
    alpha: float = 8.0
    sigma: float = 0.1
    band_size: int = 100
    oracles: int = 2
    unlearning_epochs: int = 30
    tuning_epochs: int = 15
    learning_rates: tuple[float, ...] = (0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"`seeds` must be at least 1; got {self.seeds}.")

    @classmethod
    def full(cls, seeds: int | None = None) -> DemoSettings:
        """The demo as it is meant."""
        return cls() if seeds is None else cls(seeds=seeds)

    @classmethod
    def quick(cls, seeds: int | None = None) -> DemoSettings:
        """The same road, shorter: to see that everything works, not to believe the figures."""
        full = cls(seeds=1 if seeds is None else seeds)
        return replace(
            full,
            name="quick",
            width=4,
            training=replace(full.training, epochs=8),
            checkpoints=8,
            oracles=1,
            unlearning_epochs=6,
            tuning_epochs=3,
            learning_rates=(0.05, 0.1),
        )

    def command(self) -> str:
        """What to type for this."""
        return f"remanence demo --seeds {self.seeds}" + (" --quick" if self.name == "quick" else "")

    def unlearning(self, learning_rate: float, epochs: int | None = None) -> Recipe:
        """How fine-tuning goes: as training did, with its own length and learning rate."""
        return replace(
            self.training,
            epochs=self.unlearning_epochs if epochs is None else epochs,
            learning_rate=learning_rate,
            schedule="constant",
        )
