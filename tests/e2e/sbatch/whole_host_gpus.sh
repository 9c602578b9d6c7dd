#!/bin/bash
#SBATCH --job-name=finetune
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
#= state COMPLETED
#= file finetune-%j.out
#= line 2 GPUs, 4 threads each
#= line rank 0 sees 2
set -euo pipefail
gpus=$(tr , '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c .)
export OMP_NUM_THREADS=$((SLURM_CPUS_ON_NODE / gpus))
echo "$gpus GPUs, $OMP_NUM_THREADS threads each"
srun -n1 bash -c 'echo "rank $SLURM_PROCID sees $(tr , "\n" <<< "$CUDA_VISIBLE_DEVICES" | grep -c .)"'
