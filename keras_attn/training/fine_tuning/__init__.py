"""Fine-tuning: freezing, layer-wise learning rates, low-rank adapters."""
