#!/bin/bash
# failover.command for HAProxy with one port per broker
set -eu
[ "$SRM_STEP" = go ] || exit 0
for line in "set server kafka/$SRM_SOURCE state maint" "set server kafka/$SRM_TARGET state ready" \
            "shutdown sessions server kafka/$SRM_SOURCE"; do
  echo "$line" | socat - /run/haproxy/admin.sock
done
