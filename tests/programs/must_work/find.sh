mkdir -p x/y x/z
touch -d 2020-01-01 x/y/1.c
touch -d 2021-01-01 x/y/2.h x/z/3.c
find x -name '*.c' | sort
find x -type f -newer x/y/1.c | wc -l
find x -type d -empty
find x -delete
ls
