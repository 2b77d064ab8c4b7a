#!/bin/sh
# failover.command for units of systemd: stop, change, start
set -eu
case "$SRM_STEP" in
  hold)    systemctl stop payments.service ;;
  release) systemctl start payments.service ;;
  go)      echo "KAFKA=$SRM_TARGET_SERVERS" > /etc/payments.env
           systemctl start payments.service ;;
esac
