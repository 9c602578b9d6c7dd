"""Hooks that announce iterations to rm from PyTorch DDP, Lightning and Hugging Face training.

    rm_hooks.hook(model, optimizer)                              # PyTorch, also under DDP
    lightning.Trainer(callbacks=[rm_hooks.lightning_callback()])
    transformers.Trainer(callbacks=[rm_hooks.transformers_callback()])

The frameworks are imported only inside these functions. An iteration begins before the forward pass that
follows an optimizer step, so that gradient accumulation counts as one iteration. When a DDP model
communicates is announced, too (rm_ddp.py).
"""

import rm_ddp
import rm_iteration


def hook(model, optimizer, comm_hook=None):
    """Announce the iterations of a plain PyTorch loop; returns a function that removes the hooks.

    The first forward pass after an optimizer step begins an iteration (and waits for the job's turn);
    the end of the optimizer step ends it. Evaluation passes (model.eval()) begin nothing.

    What a DDP model all-reduces is announced by a communication hook of DDP's. A model has only one: a loop
    with a hook of its own gives it here, as (state, function), instead of registering it.
    """
    iterations, state = rm_iteration.current(), {"fresh": True}
    communications = rm_ddp.Communications(iterations, model, comm_hook)

    def before_forward(module, _inputs):
        if state["fresh"] and module.training:
            state["fresh"] = False
            iterations.start()

    def after_step(_optimizer, _arguments, _keywords):
        communications.finish()
        iterations.end()
        state["fresh"] = True

    handles = [model.register_forward_pre_hook(before_forward), optimizer.register_step_post_hook(after_step)]

    def remove():
        for handle in handles:
            handle.remove()
        communications.stop()

    return remove


def lightning_callback():
    """A Lightning callback: an iteration is what lies between two optimizer steps."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class Iterations(Callback):
        def __init__(self):
            self._iterations, self._step = rm_iteration.current(), None
            self._communications = None

        def on_train_start(self, trainer, *_arguments, **_keywords):
            if self._communications is None:  # a strategy with a hook of its own keeps it
                self._communications = rm_ddp.Communications(self._iterations, trainer.strategy.model)

        def on_train_batch_start(self, trainer, *_arguments, **_keywords):
            if trainer.global_step != self._step:
                self._step = trainer.global_step
                self._iterations.start()

        def on_train_batch_end(self, trainer, *_arguments, **_keywords):
            if trainer.global_step != self._step:
                if self._communications is not None:
                    self._communications.finish()
                self._iterations.end()

    return Iterations()


def transformers_callback():
    """A Hugging Face TrainerCallback: on_step_begin … on_step_end is one iteration."""
    from transformers import TrainerCallback

    class Iterations(TrainerCallback):
        def __init__(self):
            self._iterations = rm_iteration.current()

        def on_step_begin(self, args, state, control, **_keywords):
            self._iterations.start()

        def on_step_end(self, args, state, control, **_keywords):
            self._iterations.end()

    return Iterations()
