#!/bin/bash
#SBATCH --job-name=modules --nodes=2 --ntasks=2 --output=modules-%A_%a.txt
# environment modules are a function that the login shell exports: steps have it as well
#= submit module() { export LOADED=$2; }; export -f module; sbatch --parsable modules_exported.sh
#= state COMPLETED
#= file modules-%j_4294967294.txt
#= line 0: cuda/12.1
#= line 1: cuda/12.1
#= line the job's 2 hosts, step 1
srun -l bash -c 'module load cuda/12.1; echo $LOADED'
srun -N1 -n1 bash -c "echo the job\'s \$(scontrol show hostnames \$SLURM_NODELIST | wc -l) hosts, step \$SLURM_NNODES"
