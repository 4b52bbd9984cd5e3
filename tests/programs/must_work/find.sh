mkdir -p x/y x/z
touch x/y/1.c x/y/2.h x/z/3.c
find x -name '*.c' | sort
find x -type f -newer x/y/1.c | wc -l
find x -type d -empty
find x -delete
ls
