#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gpus-per-node=2
#SBATCH --time=00:10:00
#SBATCH --output=ddp-%j.out
#= state COMPLETED
#= file ddp-%j.out
#= line nodes 2 tasks 4 per node 2\b.*
#= line [0-3]: rank 0 local 0 sum 6 on .*
#= line [0-3]: rank 3 local 1 sum 6 on .*
#= once nodes .*
set -euo pipefail
rm -rf "results-$SLURM_JOB_ID" && mkdir "results-$SLURM_JOB_ID"
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
export WORLD_SIZE=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE))
echo "nodes $SLURM_JOB_NUM_NODES tasks $SLURM_NTASKS per node $SLURM_NTASKS_PER_NODE at $MASTER_ADDR"
srun --label bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python3 train.py'
