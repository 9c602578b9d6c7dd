#!/bin/bash
#SBATCH --nodelist=z1h[1-2]
#SBATCH --ntasks-per-node=1
#= state COMPLETED
#= line z1h1
#= line z1h2
#= line z1h\[1-2\] is 2
echo "$SLURM_JOB_NODELIST is $SLURM_JOB_NUM_NODES"
srun printenv SLURMD_NODENAME
