"""A connection to the step daemon of an attempt."""

SOCKET = "steps"  # the step daemon's, by its name in the attempt's folder


class Peer:
    """Who connected: `kind` is "" until its first line, then create, carry or agent."""

    def __init__(self, sock, uid=-1):
        self.sock, self.uid = sock, uid
        self.kind = ""
        self.inbox, self.outbox = bytearray(), bytearray()
        self.step = None  # that was created for it
        self.asked = None
        self.attachable = False  # others may attend its step
        self.how = None  # the step ended, as srun says
        self.link = None  # that it is carried by
        self.name = ""  # of that link
        self.ended = False  # says no more
