"""Hooks that announce iterations to rm from PyTorch DDP, Lightning and Hugging Face training.

    rm_hooks.hook(model, optimizer)                              # PyTorch, also under DDP
    lightning.Trainer(callbacks=[rm_hooks.lightning_callback()])
    transformers.Trainer(callbacks=[rm_hooks.transformers_callback()])

The frameworks are imported only inside these functions. An iteration begins before the forward pass that
follows an optimizer step, so that gradient accumulation counts as one iteration.
"""

import rm_iteration


def hook(model, optimizer):
    """Announce the iterations of a plain PyTorch loop; returns a function that removes the hooks.

    The first forward pass after an optimizer step begins an iteration (and waits for the job's turn);
    the end of the optimizer step ends it. Evaluation passes (model.eval()) begin nothing.
    """
    iterations, state = rm_iteration.current(), {"fresh": True}

    def before_forward(module, _inputs):
        if state["fresh"] and module.training:
            state["fresh"] = False
            iterations.start()

    def after_step(_optimizer, _arguments, _keywords):
        iterations.end()
        state["fresh"] = True

    handles = [model.register_forward_pre_hook(before_forward), optimizer.register_step_post_hook(after_step)]

    def remove():
        for handle in handles:
            handle.remove()

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

        def on_train_batch_start(self, trainer, *_arguments, **_keywords):
            if trainer.global_step != self._step:
                self._step = trainer.global_step
                self._iterations.start()

        def on_train_batch_end(self, trainer, *_arguments, **_keywords):
            if trainer.global_step != self._step:
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
