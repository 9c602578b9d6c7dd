"""Parts of the Ada-SRSF scenario: the workload, and the authors' simulator's defect."""
