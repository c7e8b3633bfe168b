"""Parts that several layers share; not part of the public interface."""
