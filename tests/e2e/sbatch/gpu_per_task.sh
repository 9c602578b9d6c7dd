#!/bin/bash
#SBATCH --ntasks=4
#SBATCH --nodes=2
#SBATCH --gpus-per-task=1
#= state COMPLETED
#= line 4 steps of 1 gpu, all different
srun bash -c 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"' > seen-$SLURM_JOB_ID
test "$(sort -u seen-$SLURM_JOB_ID | wc -l)" = 4 && ! grep -q , seen-$SLURM_JOB_ID && echo "4 steps of 1 gpu, all different"
