#!/bin/bash
#SBATCH -a 1-9:4
#SBATCH -o lines-%A-%a.out
#= state COMPLETED 3
#= file lines-%j-5.out
#= line params of line 5
for n in $(seq 9); do echo "params of line $n"; done | sed -n "${SLURM_ARRAY_TASK_ID}p"
