"""Functions of token positions: sinusoids, rotation angles, biases on scores."""
