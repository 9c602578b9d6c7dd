#!/bin/bash
#SBATCH --array=0-3
#SBATCH --output=second-%A_%a.out
#= submit first=$(sbatch --parsable --array=0-3 --wrap 'echo $((SLURM_ARRAY_TASK_ID * 10)) > made-$SLURM_ARRAY_TASK_ID') && sbatch --parsable -d aftercorr:$first array_aftercorr.sh
#= state COMPLETED 4
#= file second-%j_3.out
#= line read 30
echo "read $(cat made-$SLURM_ARRAY_TASK_ID)"
