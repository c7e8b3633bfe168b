"""Attention kernels: pure functions from query, key and value to an output."""
