"""Strategies that choose the next tokens."""
