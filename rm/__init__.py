"""rm: a network-aware batch resource manager for bare-metal GPU hosts."""

__version__ = "0.1.0"
