"""Train a Keras model: of keras_attn, of KerasHub's blocks or of Keras's examples.

Called by `benchmarks/learning.py`.
"""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import keras
import keras_hub
import tensorflow as tf
from keras import ops

from keras_attn import models, training
from learning_peers import loop


def build(task):
    """Return the untrained model of a run."""
    settings, sizes = task.settings, task.sizes
    builders = {
        ("translation", "keras_attn"): keras_attn_translator,
        ("translation", "keras_hub"): keras_hub_translator,
        ("language-model", "keras_attn"): keras_attn_language_model,
        ("classifier", "keras_attn"): keras_attn_classifier,
        ("classifier", "keras_example"): example_classifier,
        ("image", "keras_attn"): keras_attn_vision_transformer,
        ("image", "keras_example"): example_vision_transformer,
    }
    return builders[settings["task"], settings["model"]](settings, sizes)


def model_sizes(settings):
    """Return the arguments that all models of keras_attn share."""
    return {
        "num_layers": settings["layers"],
        "hidden_dim": settings["width"],
        "intermediate_dim": settings["inner"],
        "num_heads": settings["heads"],
        "dropout": 0.0,
    }


def keras_attn_translator(settings, sizes):
    return models.transformer_translator(
        *sizes["vocabularies"], normalize_first=True, **model_sizes(settings)
    )


def keras_attn_language_model(settings, sizes):
    return models.causal_language_model(
        *sizes["vocabularies"], max_length=sizes["length"], **model_sizes(settings)
    )


def keras_attn_classifier(settings, sizes):
    return models.text_classifier(
        *sizes["vocabularies"],
        sizes["num_classes"],
        max_length=sizes["length"],
        pooling="mean",
        **model_sizes(settings),
    )


def keras_attn_vision_transformer(settings, sizes):
    return models.vision_transformer(
        sizes["image_size"],
        sizes["num_classes"],
        patch_size=2,
        num_channels=sizes["num_channels"],
        pooling="mean",
        **model_sizes(settings),
    )


def keras_hub_translator(settings, sizes):
    """The model of KerasHub's guide to translation, with pre-norm blocks."""

    def embed(name, vocabulary):
        ids = keras.Input((None,), dtype="int32", name=name)
        x = keras_hub.layers.TokenAndPositionEmbedding(
            vocabulary, loop.MAX_NEW_TOKENS, settings["width"], mask_zero=True
        )(ids)
        return ids, x

    options = {"normalize_first": True}
    source, encoded = embed("source", sizes["vocabularies"][0])
    target, x = embed("target", sizes["vocabularies"][1])
    for _ in range(settings["layers"]):
        encoded = keras_hub.layers.TransformerEncoder(
            settings["inner"], settings["heads"], **options
        )(encoded)
    encoded = keras.layers.LayerNormalization(epsilon=1e-5)(encoded)
    for _ in range(settings["layers"]):
        x = keras_hub.layers.TransformerDecoder(
            settings["inner"], settings["heads"], **options
        )(x, encoded)
    x = keras.layers.LayerNormalization(epsilon=1e-5)(x)
    logits = keras.layers.Dense(sizes["vocabularies"][1])(x)
    return keras.Model({"source": source, "target": target}, logits)


def example_classifier(settings, sizes):
    """The text classifier of Keras's examples, with the blocks of the comparison."""
    ids = keras.Input((sizes["length"],), dtype="int32", name="token_ids")
    width = settings["width"]
    x = keras.layers.Embedding(*sizes["vocabularies"], width)(ids)
    positions = keras.layers.Embedding(sizes["length"], width)
    x += positions(ops.arange(sizes["length"]))
    for _ in range(settings["layers"]):
        attended = keras.layers.MultiHeadAttention(
            settings["heads"], width // settings["heads"]
        )(x, x)
        x = keras.layers.LayerNormalization(epsilon=1e-6)(x + attended)
        hidden = keras.layers.Dense(settings["inner"], "relu")(x)
        x = keras.layers.LayerNormalization(epsilon=1e-6)(
            x + keras.layers.Dense(width)(hidden)
        )
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model({"token_ids": ids}, keras.layers.Dense(sizes["num_classes"])(x))


def example_vision_transformer(settings, sizes):
    """The vision transformer of Keras's examples, with the mean instead of its head."""
    side, width = sizes["image_size"], settings["width"]
    image = keras.Input((side, side, sizes["num_channels"]), name="image")
    length = (side // 2) ** 2
    patches = ops.reshape(ops.image.extract_patches(image, 2), (-1, length, 4))
    x = keras.layers.Dense(width)(patches)
    x += keras.layers.Embedding(length, width)(ops.arange(length))
    for _ in range(settings["layers"]):
        normed = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x += keras.layers.MultiHeadAttention(
            settings["heads"], width // settings["heads"]
        )(normed, normed)
        normed = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        hidden = keras.layers.Dense(settings["inner"], keras.activations.gelu)(normed)
        x += keras.layers.Dense(width)(hidden)
    x = keras.layers.LayerNormalization(epsilon=1e-6)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model({"image": image}, keras.layers.Dense(sizes["num_classes"])(x))


def make_optimizer(name, model):
    """Return an optimizer, whose learning rate is assigned at each step."""
    optimizers = {
        "adam": lambda: keras.optimizers.Adam(beta_2=0.98, epsilon=1e-9),
        "adamw": lambda: keras.optimizers.AdamW(beta_2=0.98, epsilon=1e-9),
        "lion": lambda: keras.optimizers.Lion(),
        "lamb": lambda: keras.optimizers.Lamb(beta_2=0.98),
        "keras_muon": lambda: keras.optimizers.Muon(
            adam_beta_2=0.98, epsilon=1e-9, exclude_layers=["logits"]
        ),
        "muon": lambda: training.Muon.for_model(model, adam_beta_2=0.98, epsilon=1e-9),
    }
    return optimizers[name]()


def make_loss(task):
    smoothing = task.settings["smoothing"]
    if task.is_token_task:
        return training.MaskedCrossentropy(label_smoothing=smoothing)
    num_classes = task.sizes["num_classes"]

    def loss(labels, logits):
        return ops.mean(
            keras.losses.categorical_crossentropy(
                ops.one_hot(labels, num_classes),
                logits,
                from_logits=True,
                label_smoothing=smoothing,
            )
        )

    return loss


def main():
    task = loop.Task(sys.argv[1])
    settings = task.settings
    keras.utils.set_random_seed(settings["seed"])
    model = build(task)
    optimizer = make_optimizer(settings["optimizer"], model)
    loss_function = make_loss(task)
    optimizer.build(model.trainable_variables)
    compiled = tf.function(reduce_retracing=False, jit_compile=settings["jit"])
    takes_dict = isinstance(model.input, dict)

    def call(inputs, **options):
        return model(inputs if takes_dict else next(iter(inputs.values())), **options)

    @compiled
    def update(inputs, labels):
        with tf.GradientTape() as tape:
            loss = loss_function(labels, call(inputs, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients)
        return loss

    @compiled
    def forward(inputs):
        return call(inputs, training=False)

    def train_step(inputs, labels, rate):
        optimizer.learning_rate = rate
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        return float(update(inputs, tf.constant(labels)))

    def logits(inputs):
        inputs = {name: tf.constant(value) for name, value in inputs.items()}
        return forward(inputs).numpy()

    loop.train(task, model.count_params(), train_step, logits)


if __name__ == "__main__":
    main()
