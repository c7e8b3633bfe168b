from typing import Any

import keras
import numpy as np
import pytest

from keras_attn.training import InverseSquareRootSchedule


def paper(step: Any, hidden_dim: int = 512, warmup_steps: int = 4000) -> np.ndarray:
    step = np.maximum(np.asarray(step, "float64"), 1)
    return hidden_dim**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


def test_values_of_the_paper() -> None:
    schedule = InverseSquareRootSchedule()
    steps = [0, 1, 2, 999, 3999, 4000, 4001, 100_000, 30_000_000]
    rates = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(rates, paper(steps), rtol=1e-5)
    assert rates[5] == pytest.approx(6.99e-4, abs=5e-7)
    assert max(rates) == rates[5]
    assert rates[0] == rates[1]


def test_scale_and_width() -> None:
    schedule = InverseSquareRootSchedule(128, warmup_steps=10, scale=0.5)
    steps = np.arange(40)
    rates = [float(schedule(int(step))) for step in steps]
    np.testing.assert_allclose(rates, 0.5 * paper(steps, 128, 10), rtol=1e-5)


@pytest.mark.parametrize("accumulate", [None, 3])
def test_learning_rate_of_each_update(accumulate: int | None) -> None:
    """Keras passes the number of batches; the schedule must count updates."""
    schedule = InverseSquareRootSchedule(
        hidden_dim=4, warmup_steps=5, gradient_accumulation_steps=accumulate or 1
    )
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=accumulate)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    values = [0.0]
    for _ in range(8 * (accumulate or 1)):
        optimizer.apply([keras.ops.ones(())])
        if float(weight) != values[-1]:
            values.append(float(weight))
    # The u-th update is at iteration u - 1.
    np.testing.assert_allclose(-np.diff(values), paper(np.arange(8), 4, 5), rtol=1e-4)


def test_keras_passes_batches_when_accumulating() -> None:
    """The argument `gradient_accumulation_steps` exists because of this."""
    steps = []

    class Spy(InverseSquareRootSchedule):
        def __call__(self, step: Any) -> Any:
            steps.append(int(step))
            return super().__call__(step)

    optimizer = keras.optimizers.SGD(Spy(4, 5), gradient_accumulation_steps=2)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    for _ in range(6):
        optimizer.apply([keras.ops.ones(())])
    assert max(steps) >= 5


def test_config_round_trip() -> None:
    schedule = InverseSquareRootSchedule(64, 100, 2.0, 4)
    config = keras.optimizers.schedules.serialize(schedule)
    restored = keras.optimizers.schedules.deserialize(config)
    assert type(restored) is InverseSquareRootSchedule
    assert restored.get_config() == schedule.get_config()
    assert float(restored(1234)) == float(schedule(1234))


@pytest.mark.parametrize(
    "name", ["hidden_dim", "warmup_steps", "gradient_accumulation_steps"]
)
def test_values_below_one_raise(name: str) -> None:
    with pytest.raises(ValueError, match=f"Received: {name}=0"):
        InverseSquareRootSchedule(**{name: 0})
