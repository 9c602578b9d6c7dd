"""Real data-parallel training: a PyTorch DDP model over Gloo on CPUs, or NCCL on GPUs, hooked or unhooked.

The model is a stack of linear layers of some --megabytes of gradients, which DDP all-reduces in every
step; the targets come from a fixed teacher, so that the loss really falls. RANK, WORLD_SIZE, MASTER_ADDR
and MASTER_PORT come from rm. With --compute-ms each step computes at least that long (CPU cores are few
where several jobs share a machine). At the end each rank prints one JSON line.
"""

import argparse
import json
import os
import sys
import time

try:
    import rm_hooks
    import rm_iteration
except ImportError:  # not started by rm
    rm_hooks = rm_iteration = None


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--megabytes", type=float, default=1.0, help="gradients per step")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--compute-ms", type=float, default=0.0, help="least time of the forward pass")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cuda", action="store_true", help="train on the GPU that LOCAL_RANK says, by NCCL")
    parser.add_argument("--durations", action="store_true", help="print every iteration's duration")
    parser.add_argument("--unhooked", action="store_true", help="do not announce iterations to rm")
    return parser.parse_args()


def main():
    chosen = options()
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise SystemExit("this example needs PyTorch on the host: pip install torch") from None
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if chosen.cuda else torch.device("cpu")
    if chosen.cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if chosen.cuda else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(chosen.seed)
    width = max(8, int((chosen.megabytes * 1e6 / 4 / 2) ** 0.5))
    model = torch.nn.Sequential(
        torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width, bias=False)
    ).to(device)
    teacher = torch.nn.Linear(width, width).to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.001)
    hooked = rm_hooks is not None and not chosen.unhooked
    if hooked:
        rm_hooks.hook(parallel, optimizer)
    torch.manual_seed(chosen.seed * 1000 + rank)  # each rank has its own data
    begin_us = time.time_ns() // 1000
    losses, marks = [], [time.monotonic()]
    for _ in range(chosen.iterations):
        inputs = torch.randn(chosen.batch, width, device=device)
        outputs = parallel(inputs)
        left = chosen.compute_ms / 1000 - (time.monotonic() - marks[-1])
        if left > 0:
            time.sleep(left)
        loss = torch.nn.functional.mse_loss(outputs, teacher(inputs).detach())
        optimizer.zero_grad()
        loss.backward()  # the gradients are all-reduced in here
        optimizer.step()
        losses.append(loss.item())
        marks.append(time.monotonic())
    total = torch.cat([p.detach().flatten() for p in model.parameters()]).double().sum()
    everyone = [torch.zeros_like(total) for _ in range(size)]
    dist.all_gather(everyone, total)
    in_turn = [1000 * (marks[n + 1] - marks[n]) for n in range(chosen.iterations)]
    durations = sorted(in_turn)
    summary = {
        "rank": rank,
        "iterations": chosen.iterations,
        "hooked": hooked,
        "mean_ms": round(sum(durations) / len(durations), 3),
        "p90_ms": round(durations[int(0.9 * (len(durations) - 1))], 3),
        "first_loss": round(sum(losses[:5]) / len(losses[:5]), 4),
        "last_loss": round(sum(losses[-5:]) / len(losses[-5:]), 4),
        "replicas_agree": all(bool(t == total) for t in everyone),
        "waited_ms": round(rm_iteration.current().waited_us / 1000, 3) if hooked else 0.0,
        "host": os.uname().nodename,
        "device": torch.cuda.get_device_name() if chosen.cuda else "cpu",
    }
    if chosen.durations:
        summary |= {"begin_us": begin_us, "durations_ms": [round(d, 3) for d in in_turn]}
    print(json.dumps(summary) + "\n", end="", flush=True)  # in one piece, beside other processes'
    dist.barrier()  # a rank that leaves while another still reads from it makes Gloo abort
    dist.destroy_process_group()
    return 0 if summary["replicas_agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
