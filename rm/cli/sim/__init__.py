"""`rmx sim` and `rmx interleave`."""
