#!/bin/bash
#SBATCH --bb="capacity=1G"
#= refused .*--bb.*
true
