"""A step's tasks inside a container image: the command of a task on its host (rm_srun_container.py: what srun
asks for)."""

import os

import rm_container
import rm_named_container


def name_of(folder, step, rank):
    """What podman calls the container of a task."""
    return "rm-%d-%d-%d-%d" % (folder.job, folder.attempt, int(step), rank)


def command(container, folder, step, rank, argv, environ, gpus, terminal):
    """The words that run `argv` in it; OSError, ValueError or ContainerError say why that cannot be.
    `container` is a program's of the user."""
    container = rm_container.checked(container)
    runtime, program = rm_container.found()
    if not runtime:
        raise ValueError("this host has no runtime of containers: podman, apptainer or enroot")
    options = []
    if runtime != "apptainer":  # which passes it on to the task
        rm_container.with_folder(environ)
    if container.get("name"):
        container, options = rm_named_container.filled(runtime, program, container, folder, environ)
    agents = os.path.dirname(os.path.abspath(__file__))
    own = [(folder.path, folder.path, "rw"), (agents, agents, "ro")]
    return rm_container.command(
        runtime, program, container, name_of(folder, step, rank), own, argv, environ, gpus,
        os.path.isdir(container["image"]), rm_container.runc(), "terminal" if terminal else "input", options,
    )  # fmt: skip


def runtime():
    return rm_container.found()[0]


def passes_signals():
    """Does a task's first process pass them on to what is in its container?"""
    return rm_container.passes_signals(runtime())
