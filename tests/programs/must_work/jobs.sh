for i in 1 2 3 4 5; do (sleep 0.0$i; echo done $i > job$i) & done
wait
cat job*
true & wait $!
echo $?
