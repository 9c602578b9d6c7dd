#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-9%4
#SBATCH --output=sweep-%A_%a.out
#SBATCH --time=5
#= state COMPLETED 10
#= file sweep-%j_7.out
#= line element 7 of 0-9 \(10\), rate 0\.8
rates=(0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0)
echo "element $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MIN-$SLURM_ARRAY_TASK_MAX ($SLURM_ARRAY_TASK_COUNT), rate ${rates[$SLURM_ARRAY_TASK_ID]}"
