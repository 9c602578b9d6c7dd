#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2 --ntasks-per-node=1
#SBATCH --gpus-per-task=1
#SBATCH --time=10:00
#RM --period=200ms --duty-cycle=0.4 --bandwidth=90Mbit
# Two ranks on two hosts: 120 ms of computation (emulated), then an all-reduce over TCP.
echo "rank $RANK of $WORLD_SIZE on $RM_HOST with GPU $RM_GPUS"
exec python3 /opt/rm/examples/allreduce.py --iterations 150 --compute-ms 120 --bytes 850000 "$@"
