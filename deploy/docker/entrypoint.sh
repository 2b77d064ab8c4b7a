#!/bin/bash
# Runs any command. Spark on Kubernetes starts containers as `driver ARGUMENTS` and `executor`, with
# the rest in the environment.
set -euo pipefail

case "${1:-}" in
  driver)
    shift
    cd /opt/spark/work-dir
    set -- "$SPARK_HOME/bin/spark-submit" \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
      --deploy-mode client "$@"
    ;;
  executor)
    cd /opt/spark/work-dir
    options=()
    for name in "${!SPARK_JAVA_OPT_@}"; do
      options+=("${!name}")
    done
    set -- java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CLASSPATH:-}:$SPARK_HOME/jars/*:$PWD" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
esac
exec /usr/bin/tini -s -- "$@"
