# The data in /var/lib/isobar and the user stay; an upgrade restarts the service.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ] && ! systemctl try-restart isobar.service; then
        echo 'isobar: the service did not start. All data in /var/lib/isobar is kept: journalctl --unit isobar says why' >&2
    fi
fi
exit 0
