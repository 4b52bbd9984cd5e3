mkdir -p a/b/c
echo one > a/b/one
cp -a a copy
mv copy moved
ln -s one a/b/link
ln a/b/one a/b/hard
touch -d @0 a/b/one
chmod 640 a/b/one
stat -c '%a %h %s %Y' a/b/one
readlink a/b/link
realpath --relative-to=. a/b/link
du -a moved | wc -l
ls -1R moved
cmp a/b/one moved/b/one && echo same
head -c 3 a/b/one
tail -c 2 a/b/one
rm -r moved
rmdir a/b/c
ls a/b
dd if=/dev/zero of=zeros bs=1k count=3 2>/dev/null
truncate -s 1k zeros
wc -c < zeros
split -b 512 zeros part
ls part*
sha256sum zeros
mktemp -d ./tmpXXXXXX | wc -c
install -m 600 zeros installed
stat -c %a installed
mkfifo f
cat f &
echo fifo > f
wait
