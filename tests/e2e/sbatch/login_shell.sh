#!/bin/bash -l
#SBATCH --nodes=2 --ntasks-per-node=2
#SBATCH -o login-%j.out

#= state COMPLETED
#= file login-%j.out
#= line hosts 2
#= line 3 of 4 in a login shell
#= line hosts of a step 2

# a login shell sets PATH anew: the job's commands are found all the same, in its steps, too
echo "hosts $(scontrol show hostnames "$SLURM_JOB_NODELIST" | wc -l)"
srun bash -c 'echo "$SLURM_PROCID of $SLURM_NTASKS in a login shell"'
srun -N1 -n1 bash -lc 'echo "hosts of a step $(scontrol show hostnames | wc -l)"'
