"""Reading Functional graphs, and rebuilding them with some calls replaced."""
