busybox sh -c '
set -e
for i in 1 2 3; do echo line $i; done | busybox tee f | busybox wc -l
busybox sed "s/line/row/" f | busybox awk "{ sum += \$2 } END { print sum, \$1 }"
busybox mkdir -p d/e; busybox cp f d/e/; busybox tar cf t.tar d; busybox rm -r d; busybox tar xf t.tar; busybox find d -type f
(busybox sleep 60 & echo $! > pid; wait) & busybox sleep 0.2; busybox kill $(busybox cat pid); wait; echo killed
trap "echo trapped" USR1; busybox kill -USR1 $$; echo after
busybox timeout 1 busybox sleep 60 || echo timed out
busybox sort -r f | busybox head -n 1; busybox ls d/e; busybox md5sum f | busybox cut -d" " -f3
busybox xargs -n 1 echo < f | busybox grep -c line
'
