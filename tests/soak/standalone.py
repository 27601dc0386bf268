"""`headrace run --master spark://...` on a real standalone cluster: one master, two workers, all on loopback.

    python -m tests.soak.standalone            the workers' Python has headrace
    python -m tests.soak.standalone --ship     it has not: headrace comes to them as an archive (docs/deploy.md)

Starts the cluster from the installed Spark, runs the oracle's case to its end, checks the sinks, stops what it started.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pyspark

from headrace.spark.java import find_java
from tests.code import SOURCE
from tests.e2e.kills import Case
from tests.soak.shipping import BARE_PYTHON, NAME, pack

HOME = Path(pyspark.__file__).parent
LIMIT = 1500
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--ship", action="store_true", help="send the environment to the workers as an archive")
    ship = parser.parse_args(arguments).ship
    loopback = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(HOME), "JAVA_HOME": str(find_java())}
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-standalone-")))

        def server(name: str, *arguments: str) -> Path:
            log = root / f"{name}.log"
            with open(log, "wb") as out:
                command = [str(HOME / "bin" / "spark-class"), *arguments]
                process = subprocess.Popen(command, stdout=out, stderr=out, env=loopback, cwd=root)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return log

        log = server("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = wait_for(log, r"Starting Spark master at (spark://\S+)")
        for i in range(2):
            place = ["--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(root / f"work{i}")]
            log = server(f"worker{i}", _WORKER, *place, "--cores", "1", "--memory", "1g", url)
            wait_for(log, r"(Successfully registered) with master")
        case = Case(root / "case", rows=12_000, epoch_bytes=600_000).prepare()
        run = ["-m", "headrace", "run", "app.sql", "--until-end", "--state-dir", "state", "--master", url]
        if ship:
            archive = pack(case.root / f"{NAME}.tar")
            run += ["--conf", f"spark.archives={archive}#env", "--conf", "spark.executorEnv.PYTHONPATH=env"]
            # Driver and workers run the same Python, and only the driver finds the packages on its path.
            driver = {**loopback, "PYTHONPATH": os.pathsep.join([str(SOURCE.parent), str(HOME.parent)])}
            subprocess.run([BARE_PYTHON, *run], cwd=case.root, env=driver, timeout=LIMIT, check=True)
        else:
            subprocess.run([sys.executable, *run], cwd=case.root, env=loopback, timeout=LIMIT, check=True)
        case.check()
        executors = {p.name for p in root.glob("work*/app-*/*")}
        assert len(executors) == 2, executors
    print(f"{url}: two executors{', which got headrace as an archive' if ship else ''}, the right rows")
    return 0


def wait_for(log: Path, pattern: str) -> str:
    """Wait for a line in the log of the server, and return what it says."""
    deadline = time.monotonic() + LIMIT
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return found[1]


if __name__ == "__main__":
    sys.exit(main())
