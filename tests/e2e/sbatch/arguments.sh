#!/bin/bash
#SBATCH --output=%x-%j.out
#SBATCH --error=%x-%j.err
#SBATCH --job-name=args
#= submit sbatch --parsable arguments.sh --epochs 3 "two words"
#= state COMPLETED
#= file args-%j.out
#= line 3 arguments, the last is two words
echo "$# arguments, the last is ${!#}"
echo trouble >&2
