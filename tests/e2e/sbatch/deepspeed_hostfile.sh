#!/bin/bash
#SBATCH -J deepspeed -N 3 --ntasks-per-node=2 --gres=gpu:2 -t 10
#= state COMPLETED
#= line 3 hosts of 2 slots
#= line rank 0 local 0 sum 15 on .*
#= line rank 5 local 1 sum 15 on .*
hostfile=hostfile.$SLURM_JOB_ID
scontrol show hostnames "$SLURM_JOB_NODELIST" | while read -r host; do
    echo "$host slots=$SLURM_GPUS_ON_NODE"
done > $hostfile
echo "$(grep -c 'slots=2$' $hostfile) hosts of 2 slots"
export MASTER_PORT=$((10000 + SLURM_JOB_ID % 50000))
deepspeed --hostfile $hostfile --launcher slurm train.py
rm $hostfile
