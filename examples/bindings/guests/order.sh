#!/bin/sh
# A shell script for a VM: every binding and group is a command there. No interpreter is needed, the command is a program of its own.
shop price --item nut
shop order --json '{"lines": [{"item": "bolt", "count": 2}], "note": "from a shell"}'
printf '{"lines": [{"item": "washer", "count": 7}]}' | shop order --json-file -
shop catalogue
shop set_price --item nut --cents 0 || echo "exit code $?"
caller
