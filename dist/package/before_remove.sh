# Stops what runs: volumes are closed. Of the packages .deb and .rpm.
# shellcheck shell=sh
if [ -d /run/systemd/system ]; then
    systemctl stop traceless-gateway.service traceless-host.service \
        'traceless-volume@*.socket' 'traceless-volume@*.service' 'traceless-mount@*.service' || true
fi
