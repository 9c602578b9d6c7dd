#!/bin/bash -l
#SBATCH -J "two words"   # a comment behind it
##SBATCH --ntasks=7
# SBATCH --ntasks=6
#SBATCH	--tasks-per-node 2 --comm=abbreviated \
#SBATCH --output="forms %j.out" --open-mode append
#SBATCH

#= submit sbatch --parsable -- directive_forms.sh -n 4 --export=NONE
#= state COMPLETED
#= file forms %j.out
#= line two words: 2 tasks, arguments -n 4 --export=NONE
#= once two words: .*
 #SBATCH --ntasks=5
echo "$SLURM_JOB_NAME: $SLURM_NTASKS tasks, arguments $*"
#SBATCH --ntasks=3
