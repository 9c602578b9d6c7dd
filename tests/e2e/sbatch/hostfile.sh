#!/bin/bash
#SBATCH --nodes=3 --ntasks-per-node=1 --gpus-per-node=2
#= state COMPLETED
#= line z1h1 slots=2
#= line z1h3 slots=2
for host in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
    echo "$host slots=$(echo $SLURM_GPUS_PER_NODE)"
done > hostfile-$SLURM_JOB_ID
srun -N1 -n1 cat hostfile-$SLURM_JOB_ID
