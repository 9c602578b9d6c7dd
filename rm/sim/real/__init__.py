"""Real workloads: measured jobs of production traces under rm's policies and others (`rmx sim real`)."""
