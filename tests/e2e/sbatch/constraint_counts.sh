#!/bin/bash
#SBATCH --constraint="[big*1&slow*1]"
#= state COMPLETED
#= line 2 hosts: (z1h1,z1h2|z1h2,z1h3)
echo "$SLURM_NNODES hosts: $(scontrol show hostnames | sort | paste -sd,)"
