"""A program of a user of Hydra, each run of whose sweep is a job by `hydra/launcher=submitit_slurm`."""

from pathlib import Path

import hydra
from omegaconf import DictConfig, OmegaConf


@hydra.main(version_base=None, config_path=None)
def main(config: DictConfig) -> float:
    found = OmegaConf.to_container(config)
    assert isinstance(found, dict)
    (Path(found["out"]) / f"{found['rate']}-{found['depth']}").write_text("ran\n")
    return float(found["rate"]) * float(found["depth"])


main()
