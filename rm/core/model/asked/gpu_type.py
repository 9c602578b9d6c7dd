"""The types of GPUs: what jobs ask for, and what models are. It loads nothing: lists of hosts show them."""

from __future__ import annotations


def gpu_type_of(model: str) -> str:
    """A model as Slurm names what the driver tells it: `NVIDIA H100 80GB HBM3` is `nvidia_h100_80gb_hbm3`."""
    return model.lower().replace(" ", "_")


def is_of_type(model: str, gpu_type: str) -> bool:
    """Is a GPU of this model one that a job may want by this type? "a100" is a part of "NVIDIA A100-SXM4"."""
    return gpu_type_of(gpu_type) in gpu_type_of(model)
