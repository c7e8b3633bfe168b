"""Fine-tuning: freezing, layer-wise learning rates and low-rank adapters."""
