"""Exact attention block by block, in O(T) memory."""
