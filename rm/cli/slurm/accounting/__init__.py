"""What was used, by whom and within which limits: `sacct`, `sreport`, `sacctmgr` and so on."""
