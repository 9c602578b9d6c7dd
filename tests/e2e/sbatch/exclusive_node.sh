#!/bin/bash
#SBATCH -N1 --exclusive --mem=0
#= state COMPLETED
#= line 8 cpus on node, 8\b.*
echo "$SLURM_CPUS_ON_NODE cpus on node, $SLURM_JOB_CPUS_PER_NODE"
