#!/bin/bash
# as Hugging Face's accelerate shows it, in examples/slurm/submit_multinode.sh
#SBATCH --job-name=multinode
#SBATCH -D .
#SBATCH --output=O-%x.%j
#SBATCH --error=E-%x.%j
#SBATCH --nodes=2                   # number of nodes
#SBATCH --ntasks-per-node=1         # number of MP tasks
#SBATCH --gres=gpu:2                # number of GPUs per node
#SBATCH --cpus-per-task=2           # number of cores per tasks
#SBATCH --time=01:59:00             # maximum execution time (HH:MM:SS)
#= state COMPLETED
#= file O-multinode.%j
#= line rank 0 local 0 sum 6 on .*
#= line rank 1 local 1 sum 6 on .*
#= line rank 2 local 0 sum 6 on .*
#= line rank 3 local 1 sum 6 on .*
export GPUS_PER_NODE=2

head_node_ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)

export LAUNCHER="accelerate launch \
    --num_processes $((SLURM_NNODES * GPUS_PER_NODE)) \
    --num_machines $SLURM_NNODES \
    --rdzv_backend c10d \
    --main_process_ip $head_node_ip \
    --main_process_port 29500 \
    "
export SCRIPT="train.py"
export SCRIPT_ARGS=" \
    --mixed_precision fp16 \
    "

# This step is necessary because accelerate launch does not handle multiline arguments properly
export CMD="$LAUNCHER $SCRIPT $SCRIPT_ARGS"
srun $CMD
