#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --gpus=1 --cpus-per-gpu=2 --mem=1G
#SBATCH --time=02:00:00
#SBATCH --output=jupyter-%j.log
#= forward jupyter-%j.url
#= state CANCELLED
#= file jupyter-%j.log
#= line .*Jupyter Server .* is running at:?
port=$(shuf -i 8900-9999 -n 1)
token=$(python3 -c 'import secrets; print(secrets.token_hex(24))')
echo "http://127.0.0.1:$port/lab?token=$token" > jupyter-$SLURM_JOB_ID.url
exec ${JUPYTER:-jupyter} lab --no-browser --ip=127.0.0.1 --port=$port --IdentityProvider.token=$token
