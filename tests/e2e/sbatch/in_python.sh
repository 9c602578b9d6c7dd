#!/usr/bin/env python3
#SBATCH --job-name=python
#SBATCH --ntasks=1
#= state COMPLETED
#= line job python by python3
import os
print("job", os.environ["SLURM_JOB_NAME"], "by python3")
