"""Token embedding and pooling layers."""
