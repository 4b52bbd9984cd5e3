seq 1 1000 | grep 7 | sort -rn | head -n 3 | tr '\n' ' ' | sed 's/9/N/g' | tee copy | wc -c
cat copy
