"""Has the archives of classes written, so that each Java that a test starts is a quick one."""

from __future__ import annotations

import logging

from srm_lab.stack.kafka import archive_broker_classes
from srm_lab.stack.spark import archive_spark_classes

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    archive_broker_classes()
    archive_spark_classes()
