seq 10 > n
awk '{s += $1} END {print s}' n
sed -i 's/1/one/' n
grep -c one n
grep -rl one . | sort
