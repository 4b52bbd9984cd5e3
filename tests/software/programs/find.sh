# What is done, with COUNT files; the outcome must not depend on when and where.
python3 -IS -c "$MAKE_SRC"
find src -type f -size -2 | sort | sha256sum; find src -name '*7.txt' -perm -100 | sort;
find src -type l -xtype f | wc -l
find src -type f -links 2 -printf '%n %P\n' | sort; find -L src -samefile src/d0/e0/f0.txt | sort;
find src -depth -empty -print
find src -newer src/d0/e0/f0.txt -type d | wc -l; find src -name 'f1*' -exec chmod 600 {} +;
find src -perm 600 | wc -l
find src -name 'f2*' -delete; find src -type f | wc -l;
find src -mindepth 2 -maxdepth 2 -type d -execdir sh -c 'echo ${PWD##*/}' \; | sort | uniq -c
