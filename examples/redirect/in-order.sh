#!/bin/bash
# failover.command = in-order.sh FILE PROGRAM: one order at a time, and none after a higher one.
# FILE keeps the highest order: one file for clients that always move together.
set -eu
file="$1"
shift
exec 9> "$file.lock"
flock 9
if [ "$SRM_ORDER" -lt "$(cat "$file" 2> /dev/null || echo 0)" ]; then
  echo "order $SRM_ORDER comes late and is ignored"
  exit 0
fi
echo "$SRM_ORDER" > "$file.new"
mv "$file.new" "$file"
"$@" 9>&-
