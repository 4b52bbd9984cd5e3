exec 3>three
echo x >&3
exec 3>&-
{ echo out; echo err >&2; } >both 2>&1
cat three both
cat <<END
here
END
