#!/bin/bash
#SBATCH -J torchrun
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:2
#SBATCH -c 2
#SBATCH -t 10
#= state COMPLETED
#= line rank 0 local 0 sum 6 on .*
#= line rank 3 local 1 sum 6 on .*
nodes=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname)
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 2 --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d \
    --rdzv_endpoint $head_node_ip:29500 train.py
