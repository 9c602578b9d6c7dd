#!/bin/bash
#SBATCH -J report
#= submit bash pipeline.bash
#= state COMPLETED
#= line prep COMPLETED
#= line train_1 COMPLETED
#= line train_2 FAILED
#= line eval CANCELLED
#= line cleanup COMPLETED
#= line report of 1 COMPLETED
cat "$1"
