"""The state directory: catalog, plan versions, progress, checkpoints, savepoints."""
