#!/bin/bash
#SBATCH -n1
#= submit PLAIN=p OTHER=o sbatch --parsable --export='LIST="1,2",TEXT=x y,PLAIN' export_quoted.sh
#= state COMPLETED
#= line batch: 1,2 x y p none
#= line step: 1,2 x y p none
#= line of its own: 3,4 none
#= line error: 42
#= line zero: 1
told='${LIST:-none} ${TEXT:-none} ${PLAIN:-none} ${OTHER:-none}'
eval "echo \"batch: $told\""
srun bash -c "echo \"step: $told\""
srun --export='LIST="3,4"' bash -c 'echo "of its own: $LIST ${TEXT:-none}"'
SLURM_EXIT_ERROR=42 srun -w nosuchhost true
echo "error: $?"
SLURM_EXIT_ERROR=0 srun -w nosuchhost true
echo "zero: $?"
