sh -c 'trap "echo caught; exit 5" TERM; kill -TERM $$; sleep 1' || echo $?
sh -c 'kill -KILL $$' || echo killed
timeout 0.1 sleep 60 || echo $?
