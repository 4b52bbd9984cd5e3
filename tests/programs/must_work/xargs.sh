seq 20 | xargs -n 3 -P 4 echo | wc -w
printf 'a\0b' | xargs -0 -n 1 echo
