#!/bin/bash
#SBATCH --begin=now+1
#SBATCH --hold
#= submit id=$(sbatch --parsable begin.sh) && scontrol release $id && echo $id
#= state COMPLETED
#= line began
echo began
