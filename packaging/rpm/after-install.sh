# As other packages of this kind: a first installation neither enables nor starts the service, unless a preset says so.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    [ "$1" -gt 1 ] || systemctl --no-reload preset isobar.service >/dev/null 2>&1 || :
fi
exit 0
