# The user of the service, before files of its group are laid out.
getent group isobar >/dev/null || groupadd --system isobar
getent passwd isobar >/dev/null ||
    useradd --system --gid isobar --home-dir /var/lib/isobar --no-create-home --shell /sbin/nologin --comment Isobar isobar
exit 0
