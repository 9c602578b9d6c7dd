"""What the playbook engine needs of the world: files, inventories, vaults, ways to hosts, the history."""
