#!/bin/bash
# failover.command for a name of clients in DNS, by nsupdate
set -eu
[ "$SRM_STEP" = go ] || exit 0
nsupdate -k /etc/srm/ddns.key <<END
server ns1.example.org
zone example.org
update delete kafka.example.org A
update add kafka.example.org 1 A ${SRM_TARGET_SERVERS%%:*}
send
END
