"""What all papers share: how they are found, run over seeds, compared with what was printed, and shown."""
