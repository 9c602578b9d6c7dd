"""What a user asks for, in a script's `#SBATCH` and `#RM` lines and in options, as a job specification.

For every door through which jobs come: the command line and the page. Cheap to import.
"""
