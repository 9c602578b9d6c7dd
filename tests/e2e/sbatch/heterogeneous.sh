#!/bin/bash
#SBATCH --ntasks=1 --mem=1G
#SBATCH hetjob
#SBATCH --ntasks=4
#= refused .*[Hh]et.*
srun true
