"""What more executors, pipelines and streams would need: a cost model from measurements, and a simulator on top of it.

`python -m bench.scale` measures, fits, compares predictions with other measurements, and prints docs/scale.md's tables.
"""
