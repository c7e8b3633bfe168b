import keras
import numpy as np
import pytest

from keras_attn.training import InverseSquareRootSchedule


def paper(step, hidden_dim=512, warmup_steps=4000):
    step = np.maximum(np.asarray(step, "float64"), 1)
    return hidden_dim**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


def test_values_of_the_paper():
    schedule = InverseSquareRootSchedule()
    steps = [0, 1, 2, 999, 3999, 4000, 4001, 100_000, 30_000_000]
    got = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(got, paper(steps), rtol=1e-5)
    assert got[5] == pytest.approx(6.99e-4, abs=5e-7)
    assert max(got) == got[5]
    assert got[0] == got[1]


def test_scale_and_width():
    schedule = InverseSquareRootSchedule(128, warmup_steps=10, scale=0.5)
    steps = np.arange(40)
    got = [float(schedule(int(step))) for step in steps]
    np.testing.assert_allclose(got, 0.5 * paper(steps, 128, 10), rtol=1e-5)


@pytest.mark.parametrize("accumulate", [None, 3])
def test_learning_rate_of_each_update(accumulate):
    """The schedule sees batches; with accumulation it must count updates."""
    schedule = InverseSquareRootSchedule(
        hidden_dim=4, warmup_steps=5, gradient_accumulation_steps=accumulate or 1
    )
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=accumulate)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    seen = [0.0]
    for _ in range(8 * (accumulate or 1)):
        optimizer.apply([keras.ops.ones(())])
        if float(weight) != seen[-1]:
            seen.append(float(weight))
    # The u-th update is at iteration u - 1.
    np.testing.assert_allclose(-np.diff(seen), paper(np.arange(8), 4, 5), rtol=1e-4)


def test_keras_counts_batches_when_it_accumulates():
    """What the argument is for: goes when Keras divides by itself."""
    steps = []

    class Spy(InverseSquareRootSchedule):
        def __call__(self, step):
            steps.append(int(step))
            return super().__call__(step)

    optimizer = keras.optimizers.SGD(Spy(4, 5), gradient_accumulation_steps=2)
    weight = keras.Variable(0.0)
    optimizer.build([weight])
    for _ in range(6):
        optimizer.apply([keras.ops.ones(())])
    assert max(steps) >= 5


def test_config_round_trip():
    schedule = InverseSquareRootSchedule(64, 100, 2.0, 4)
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert type(again) is InverseSquareRootSchedule
    assert again.get_config() == schedule.get_config()
    assert float(again(1234)) == float(schedule(1234))


@pytest.mark.parametrize(
    "name", ["hidden_dim", "warmup_steps", "gradient_accumulation_steps"]
)
def test_refuses_less_than_one(name):
    with pytest.raises(ValueError, match=f"Received: {name}=0"):
        InverseSquareRootSchedule(**{name: 0})
