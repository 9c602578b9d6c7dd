#!/bin/bash
#SBATCH --job-name=nightly
#SBATCH --dependency=singleton
#= submit sbatch --parsable -J nightly --wrap 'sleep 0.5; echo first > nightly.txt' > /dev/null && sbatch --parsable singleton.sh
#= state COMPLETED
#= line after first
echo "after $(cat nightly.txt)"
