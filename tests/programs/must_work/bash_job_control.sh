cat > j.sh <<'SCRIPT'
set -m
state() { grep '^State' /proc/$1/status 2>/dev/null | cut -f2 | cut -c1; }
until_state() { while [ "$(state $1)" != $2 ]; do sleep 0.01; done; }
sleep 60 & first=$!
until_state $first S
kill -STOP %1; until_state $first T; sleep 0.1
jobs %1 | sed 's/ *sleep.*//'
kill -CONT $first; until_state $first S; sleep 0.1
jobs %1 | sed 's/ *sleep.*//'
kill -TERM %1; wait $first 2>/dev/null; echo "terminated $?"
(sleep 0.1; exit 3) & wait -n; echo "wait -n $?"
sh -c 'kill -STOP $$; echo continued' & second=$!
until_state $second T; sleep 0.1
fg %sh > out; cat out
trap 'echo chld >> chld' CHLD
for n in 1 2 3; do sleep 0.01 & wait $!; done
trap - CHLD
test -s chld && echo "children were reported"
coproc cat
echo to-coproc >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo "$line"
exec {COPROC[1]}>&-
diff <(echo a; echo b) <(echo a; echo c)
cut -d' ' -f5 /proc/$$/stat > mine
sh -c 'cut -d" " -f5 /proc/$$/stat' > other; cmp -s mine other || echo "a job has a group of its own"
set +m; shopt -s lastpipe; echo piped | read -r got; echo "$got"
SCRIPT
bash j.sh 2> errors
grep -v Terminated errors || true
