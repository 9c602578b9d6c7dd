#!/bin/bash
#SBATCH --constraint="nvme&!slow"
#SBATCH --prefer=big
#= state COMPLETED
#= line on z1h2
echo "on $SLURMD_NODENAME"
