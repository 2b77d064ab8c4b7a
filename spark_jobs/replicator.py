"""spark-submit entry point of the replicator: ``srm replicate`` without the view.

spark-submit spark_jobs/replicator.py --config srm.properties --flow 'P->B' --flow 'B->P'
"""

from __future__ import annotations

import argparse
import logging
import sys

from srm import logs
from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import parse_duties
from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm.spark.replicator import Replicator, run_program
from srm.wiring import require_two_clusters


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", help="properties file; else $SRM_CONFIG, ./srm.properties")
    parser.add_argument(
        "--flow", action="append", type=Flow.parse, metavar="A->B", help="default: all enabled"
    )
    parser.add_argument("--until-caught-up", action="store_true")
    parser.add_argument("--without", default="", help="duties that something else does")
    options = parser.parse_args()
    logs.set_up(srm=logging.INFO)
    try:
        config = load_config(options.config)
        flows = options.flow or config.flows
        require_two_clusters(config, flows)
        replicator = Replicator(config, flows, without=parse_duties(options.without))
        run_program(replicator, until_caught_up=options.until_caught_up)
    except SrmError as error:
        sys.stderr.write(f"srm: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
