"""The sum of all ranks, over TCP: what an all-reduce of one number does."""

import os
import socket
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meeting_point = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(("", meeting_point[1])) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(other.makefile().readline()) for other in others)
        for other in others:
            other.sendall(b"%d\n" % total)
else:
    while True:
        try:
            other = socket.create_connection(meeting_point, timeout=60)
            break
        except ConnectionRefusedError:  # rank 0 does not listen yet
            time.sleep(0.1)
    other.sendall(b"%d\n" % rank)
    total = int(other.makefile().readline())
local, host = os.environ["LOCAL_RANK"], os.environ["SLURMD_NODENAME"]
# Python is unbuffered in jobs: what is written at once stays one line beside those of the other local rank
sys.stdout.write(f"rank {rank} local {local} sum {total} on {host}\n")
sys.stdout.flush()
