#!/bin/bash
#SBATCH -A physics
#SBATCH -q normal
#SBATCH --mail-type=END,FAIL
#SBATCH --mail-user=root@localhost
#SBATCH --nice=10
#SBATCH --comment="nightly run"   # what comes here is none of it
#= state COMPLETED
#= line for physics
echo "for $SLURM_JOB_ACCOUNT"
