#!/bin/bash
#SBATCH --export=NONE
#= submit NOISE=1 sbatch --parsable environment.sh
#= state COMPLETED
#= line noise none, home /.*
echo "noise ${NOISE:-none}, home $HOME"
