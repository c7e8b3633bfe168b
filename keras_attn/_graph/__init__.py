"""Functional graphs: read them, and rebuild them with some calls replaced."""
