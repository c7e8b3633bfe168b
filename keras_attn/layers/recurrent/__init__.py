"""Recurrent encoder and decoder."""
