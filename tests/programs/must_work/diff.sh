printf 'a\nb\n' > x
printf 'a\nc\n' > y
diff x y || echo differs $?
cmp x x && echo same
