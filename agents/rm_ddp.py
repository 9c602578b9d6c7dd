"""What a DDP model communicates, told to the iteration client: from its first bucket until all have arrived.

DDP all-reduces gradients in buckets during the backward pass. A communication hook sees each of them begin.
The first of a pass waits for the job's turn, where rm admits single transfers.
"""

import sys
import threading


class Communications:
    """Those of one model; one that is no DistributedDataParallel has none.

    `comm_hook`: (state, function), the one that the loop would have registered; without it, DDP's own.
    """

    def __init__(self, iterations, model, comm_hook=None):
        self._iterations, self._lock = iterations, threading.Lock()
        self._begun, self._all_begun, self._under_way = False, False, 0
        self._events = []  # of a device, one for each bucket: it has arrived there
        self._on = _registered(model, self, comm_hook, iterations.active)

    def bucket(self, bucket):
        """One is about to be sent; returns what is to be called when it has arrived."""
        if not self._on:
            return _nothing
        device = bucket.buffer().is_cuda
        if self._begun and bucket.index() == 0:  # another pass before the optimizer's step
            self.finish()
        if not self._begun:
            self._begun, self._all_begun, self._events = True, False, []
            asks = self._iterations.asks()
            if device and asks:
                _catch_up()  # its gradients may not be there yet
            # what a device sends without asking is not waited for, so that its time is not known
            self._iterations.communication_starts(timed=asks or not device)
        with self._lock:
            self._under_way += 1
            self._all_begun = bucket.is_last()
        return self._event if device else self._arrived

    def finish(self):
        """The optimizer's step is done: nothing is under way."""
        if self._begun:
            if self._events and self._iterations.asks():
                for event in self._events:
                    event.synchronize()
            self._end()

    def stop(self):
        """Announce nothing any more: DDP keeps a hook for ever."""
        self.finish()
        self._on = False

    def _arrived(self):
        """In a thread of the backend's, and before the backward pass returns."""
        with self._lock:
            self._under_way -= 1
            over = self._all_begun and not self._under_way
        if over:
            self._end()

    def _event(self):
        self._events.append(_recorded())

    def _end(self):
        self._begun, self._under_way = False, 0
        self._iterations.communication_ends()


def _registered(model, communications, comm_hook, active):
    try:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
        from torch.nn.parallel import DistributedDataParallel
    except ImportError:
        return False
    if not isinstance(model, DistributedDataParallel):
        return False
    if not active:
        if comm_hook is not None:
            model.register_comm_hook(*comm_hook)
        return False
    state, function = comm_hook or (model.process_group, allreduce_hook)

    # DDP checks the annotations of a hook, if it has any
    def told(_state, bucket):
        arrived = communications.bucket(bucket)

        def passed_on(future):
            arrived()
            found = future.value()
            return found[0] if isinstance(found, (list, tuple)) else found

        return function(state, bucket).then(passed_on)

    try:
        model.register_comm_hook(None, told)
    except RuntimeError as error:  # it has one already
        sys.stderr.write(
            "rm_hooks: %s; rm cannot see when the model communicates. Give its hook to rm_hooks.hook"
            " instead, as comm_hook=(state, function).\n" % str(error).splitlines()[0].rstrip(".")
        )
        return False
    return True


def _nothing():
    pass


def _catch_up():
    import torch

    torch.cuda.current_stream().synchronize()


def _recorded():
    import torch

    event = torch.cuda.Event()
    event.record()
    return event
