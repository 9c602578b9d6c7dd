"""How the cluster is shared: accounts with shares, and who is in them."""
