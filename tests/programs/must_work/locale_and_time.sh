TZ=UTC date -d @0 +%Y
TZ=Europe/Paris date -d @0 +%H
printf '%s' 'ä' | wc -m
getent passwd root | cut -d: -f1
