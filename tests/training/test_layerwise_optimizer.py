"""Layer-wise learning rates, compared with one Keras optimizer per variable."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from fine_tuned import (
    CLASSES,
    changed,
    classifier,
    compiled,
    data,
    fitted,
    saved_and_loaded,
    values,
)
from tensors import array, fill_weights, normal

from keras_attn import training
from keras_attn.training import LayerwiseOptimizer, layerwise_decay

FACTORS = {"a": 1.0, "b": 0.5, "c": 0.0, "d": 2.0}


def schedule(factor: float) -> keras.optimizers.schedules.LearningRateSchedule:
    rates = [0.1 * factor, 0.05 * factor]
    return keras.optimizers.schedules.PiecewiseConstantDecay([3], rates)


def constant(factor: float) -> float:
    return 0.1 * factor


OPTIMIZERS = {
    "sgd": lambda rate: keras.optimizers.SGD(rate(1), momentum=0.9, nesterov=True),
    "adam": lambda rate: keras.optimizers.Adam(rate(1), amsgrad=True),
    "adamw": lambda rate: keras.optimizers.AdamW(rate(1), weight_decay=0.3),
    "clipped": lambda rate: keras.optimizers.Adam(rate(1), clipnorm=0.5),
    "averaged": lambda rate: keras.optimizers.SGD(
        rate(1), use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2
    ),
    "accumulating": lambda rate: keras.optimizers.AdamW(
        rate(1), weight_decay=0.3, gradient_accumulation_steps=2
    ),
    "scaled": lambda rate: keras.optimizers.RMSprop(rate(1), loss_scale_factor=8.0),
    "nadam": lambda rate: keras.optimizers.Nadam(rate(1), weight_decay=0.3),
    "muon": lambda rate: keras.optimizers.Muon(rate(1), adam_weight_decay=0.3),
}


def variables() -> list[keras.Variable]:
    created = []
    for i, name in enumerate(FACTORS):
        with keras.name_scope(name):
            value = normal(3, 2, seed=i)
            created.append(keras.Variable(value, dtype="float32", name="weight"))
    return created


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        *(
            pytest.param(name, schedule, marks=pytest.mark.on_pytorch)
            for name in OPTIMIZERS
        ),
        pytest.param("adamw", constant, marks=pytest.mark.every_backend),
    ],
)
def test_updates_equal_one_optimizer_per_variable(
    name: str, rate: Callable[[float], Any]
) -> None:
    optimizer = LayerwiseOptimizer(
        OPTIMIZERS[name](rate), {f"^{x}/": factor for x, factor in FACTORS.items()}
    )
    actual, expected = variables(), variables()
    optimizer.build(actual)
    separate = [
        OPTIMIZERS[name](lambda x, f=factor: rate(x * f)) for factor in FACTORS.values()
    ]
    for step in range(6):
        gradients = [
            keras.ops.convert_to_tensor(normal(3, 2, seed=10 * step + i))
            for i in range(len(FACTORS))
        ]
        optimizer.apply(gradients)
        for inner, gradient, variable in zip(separate, gradients, expected):
            inner.apply([gradient], [variable])
        for variable, other in zip(actual, expected):
            np.testing.assert_allclose(
                array(variable), array(other), rtol=2e-5, atol=1e-6
            )
    assert np.array_equal(array(actual[2]), normal(3, 2, seed=2))


ALL_OPTIMIZERS = [
    *("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax"),
    *("Adafactor", "Ftrl", "Lamb", "Lion", "Muon", "Nadam", "ScheduleFreeAdamW"),
]


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ALL_OPTIMIZERS)
def test_equal_rates_are_the_optimizer_itself(name: str) -> None:
    def updated(wrap: Callable[[keras.optimizers.Optimizer], Any]) -> np.ndarray:
        optimizer = wrap(getattr(keras.optimizers, name)(0.05, weight_decay=0.1))
        trained = variables()
        optimizer.build(trained)
        for step in range(4):
            gradients = [
                keras.ops.convert_to_tensor(normal(3, 2, seed=10 * step + i))
                for i in range(len(FACTORS))
            ]
            optimizer.apply(gradients)
        return np.stack([array(variable) for variable in trained])

    bare = updated(lambda optimizer: optimizer)
    assert np.isfinite(bare).all()
    for factors in ({}, {"a/": 1.0, "b/": 1}):
        wrapped = updated(lambda x, f=factors: LayerwiseOptimizer(x, f))
        np.testing.assert_allclose(wrapped, bare, rtol=1e-6, atol=1e-7)


def test_constraints_are_applied_once() -> None:
    def updated(wrap: Callable[[keras.optimizers.Optimizer], Any]) -> np.ndarray:
        with keras.name_scope("a"):
            variable = keras.Variable(normal(3, 2), name="weight")
        variable.constraint = keras.constraints.MinMaxNorm(0.1, 0.2, rate=0.5)
        wrap(keras.optimizers.SGD(0.1)).apply([keras.ops.ones((3, 2))], [variable])
        return array(variable)

    wrapped = updated(lambda x: LayerwiseOptimizer(x, {"a/": 1.0}))
    np.testing.assert_allclose(wrapped, updated(lambda x: x), rtol=1e-6)


def test_optimizers_that_override_other_steps_raise() -> None:
    class Centralized(keras.optimizers.SGD):
        def _clip_gradients(self, grads: Any) -> Any:
            return [g - keras.ops.mean(g) for g in grads]

        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            super().apply(grads, trainable_variables)

    with pytest.raises(
        ValueError, match=r"Centralized, which overrides \['apply', '_clip_gradients'\]"
    ):
        LayerwiseOptimizer(Centralized(0.1), {})


def test_global_norm_is_over_all_gradients() -> None:
    actual, expected = variables(), variables()
    optimizer = LayerwiseOptimizer(
        keras.optimizers.SGD(1.0, global_clipnorm=0.1), {"^b/": 0.5}
    )
    plain = keras.optimizers.SGD(1.0, global_clipnorm=0.1)
    gradients = [keras.ops.ones((3, 2)) for _ in FACTORS]
    before = [array(v) for v in actual]
    optimizer.apply(gradients, actual)
    plain.apply(gradients, expected)
    for i, (variable, other) in enumerate(zip(actual, expected)):
        step = (array(other) - before[i]) * (0.5 if i == 1 else 1.0)
        np.testing.assert_allclose(array(variable) - before[i], step, atol=1e-6)


def test_variables_excluded_from_weight_decay() -> None:
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    layerwise = LayerwiseOptimizer(optimizer, {"kernel": 0.5})
    bias, kernel, other = (
        keras.Variable(np.ones(2, "float32"), name=name)
        for name in ("bias", "kernel", "other")
    )
    layerwise.exclude_from_weight_decay(var_names=["bias", "other"])
    zeros = [keras.ops.zeros(2)] * 3
    layerwise.apply(zeros, [bias, kernel, other])
    assert [float(array(v)[0]) for v in (bias, other)] == [1, 1]
    assert float(array(kernel)[0]) == pytest.approx(1 - 0.1 * 0.5 * 0.5)


@pytest.mark.slow
@pytest.mark.on_pytorch
def test_fit_save_and_resume(tmp_path: Path) -> None:
    model = classifier()
    factors = {"^(embedding|position|norm)/": 0.0, **layerwise_decay(model, 0.5)}
    cosine = keras.optimizers.schedules.CosineDecay(0.02, 40)
    compiled(model, LayerwiseOptimizer(keras.optimizers.AdamW(cosine), factors))
    before = values(model)
    losses = fitted(model)
    assert losses[-1] < losses[0]
    assert {path.split("/")[0] for path in changed(model, before)} == {
        *("encoder_0", "encoder_1", "logits")
    }
    loaded = saved_and_loaded(model, tmp_path)
    assert len(loaded.optimizer.variables) == len(model.optimizer.variables)
    fitted(model)
    fitted(loaded)
    for path, value in values(model).items():
        np.testing.assert_allclose(values(loaded)[path], value, atol=1e-6)


def dense_model(jit_compile: bool) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(4, "relu", name="below"),
            keras.layers.Dense(CLASSES, name="above"),
        ]
    )
    fill_weights(model)
    optimizer = LayerwiseOptimizer(keras.optimizers.AdamW(0.1), {"(^|/)below/": 0.1})
    return compiled(model, optimizer, jit_compile)


@pytest.mark.slow
def test_compiled_equals_uncompiled() -> None:
    models = [dense_model(jit_compile) for jit_compile in (False, True)]
    for model in models:
        fitted(model)
    for weight, expected in zip(*(model.weights for model in models)):
        np.testing.assert_allclose(array(weight), array(expected), atol=1e-5)


def test_callbacks_set_the_learning_rate() -> None:
    model = dense_model(False)
    before = values(model)
    callback = keras.callbacks.LearningRateScheduler(lambda epoch: 0.0)
    model.fit(*data(), callbacks=[callback], verbose=0)
    assert changed(model, before) == set()


def test_layerwise_decay_factors() -> None:
    model = classifier()
    factors = layerwise_decay(model, 0.5)
    assert factors == {
        "^embedding/": 1 / 8,
        "^position/": 1 / 8,
        "^norm/": 1 / 8,
        "^encoder_0/": 1 / 4,
        "^encoder_1/": 1 / 2,
        "^logits/": 1.0,
    }
    optimizer = LayerwiseOptimizer("adam", factors)
    optimizer.build(model.trainable_variables)
    factor_of = dict(
        zip((v.path for v in model.trainable_variables), optimizer._factors)
    )
    assert factor_of["encoder_0/self_attention/query/kernel"] == 0.25
    assert factor_of["logits/bias"] == 1
    training.enable_lora(model, 2)
    assert layerwise_decay(model, 0.5) == factors


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="wraps no other optimizer.*Received"):
        LayerwiseOptimizer(
            keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), {}
        )
    with pytest.raises(ValueError, match=r"factors\['x'\]=-1"):
        LayerwiseOptimizer("sgd", {"x": -1})
    optimizer = LayerwiseOptimizer("sgd", {"^nowhere/": 0.5})
    with pytest.raises(ValueError, match="nowhere"):
        optimizer.build(variables())
    with pytest.raises(ValueError, match="decay=0"):
        layerwise_decay(classifier(), 0)
    inputs = keras.Input((None,), dtype="int32")
    towers = [classifier(), classifier()]
    for name, tower in zip("ab", towers):
        tower.name = name
    both = keras.Model(inputs, keras.layers.add([tower(inputs) for tower in towers]))
    with pytest.raises(ValueError, match="several layers with the paths .*encoder_0"):
        layerwise_decay(both, 0.5)
