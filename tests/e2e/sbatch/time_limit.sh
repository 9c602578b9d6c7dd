#!/bin/bash
#SBATCH --time=00:00:01
#= state TIMEOUT
sleep 600
