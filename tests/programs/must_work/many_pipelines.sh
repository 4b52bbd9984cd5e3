for i in $(seq 200); do echo $i | cat | cat | cat; done | sort -n | tail -n 1
