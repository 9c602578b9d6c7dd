#= submit printf '#!/bin/bash\n#SBATCH -J typed\necho typed in\n' | sbatch --parsable
#= state COMPLETED
#= line typed in
