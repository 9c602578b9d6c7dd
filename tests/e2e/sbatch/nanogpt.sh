#!/bin/bash
#SBATCH --job-name=nanogpt
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --gpus-per-task=2
#SBATCH --cpus-per-task=2
#SBATCH --gpu-bind=none
#SBATCH --output=nanogpt-%j.log
#= state COMPLETED
#= file nanogpt-%j.log
#= line Node IP: \d+\.\d+\.\d+\.\d+
#= line rank 0 local 0 sum 6 on .*
#= line rank 2 local 0 sum 6 on .*
#= line rank 3 local 1 sum 6 on .*
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${nodes_array[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" bash -c "getent hosts $head_node | awk '{print \$1; exit}'")
echo Node IP: $head_node_ip
export LOGLEVEL=INFO
srun torchrun --nnodes 2 --nproc_per_node 2 --rdzv_id $RANDOM --rdzv_backend c10d \
    --rdzv_endpoint $head_node_ip:$((20000 + SLURM_JOB_ID % 10000)) train.py
