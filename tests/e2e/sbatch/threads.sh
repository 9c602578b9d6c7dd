#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=100M
#= state COMPLETED
#= line 4 threads, 100 MB each
#= once 4 threads.*
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
echo "$OMP_NUM_THREADS threads, $SLURM_MEM_PER_CPU MB each"
