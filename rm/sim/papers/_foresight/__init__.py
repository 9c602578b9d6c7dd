"""Parts of FORESIGHT's scenario."""
