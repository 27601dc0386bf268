"""The state directory of a hub: catalog, plan versions, progress, checkpoints, savepoints."""
