#!/bin/bash
# failover.command for a Deployment of Kubernetes; not tested: no cluster was available
set -eu
case "$SRM_STEP" in
  hold) kubectl -n payments annotate --overwrite deployment/app \
            srm/replicas="$(kubectl -n payments get deployment/app -o jsonpath={.spec.replicas})"
        kubectl -n payments scale deployment/app --replicas=0 ;;
  go)   kubectl -n payments patch configmap kafka --patch "{\"data\":{\"servers\":\"$SRM_TARGET_SERVERS\"}}" ;;
esac
[ "$SRM_STEP" = hold ] || kubectl -n payments scale deployment/app \
    --replicas="$(kubectl -n payments get deployment/app -o jsonpath='{.metadata.annotations.srm/replicas}')"
