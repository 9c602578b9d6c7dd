"""The jobs that have not ended: `squeue`, `sprio`, `scancel`."""
