"""Resident memory of this process, read from Linux's /proc."""

import ctypes
import pathlib


def release_memory():
    """Return freed memory to the system, if the C library supports it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def reset_peak():
    """Reset the peak to the current resident memory; return it in bytes."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def status(name):
    """Return a field of /proc/self/status in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"Expected a line of /proc/self/status. Received: name={name!r}")
