# Makes the users of the services, and shows the units to systemd. Of the packages .deb and .rpm.
# shellcheck shell=sh
if command -v systemd-sysusers >/dev/null 2>&1; then
    systemd-sysusers traceless.conf
else
    for service in gateway host; do
        if ! id "traceless-$service" >/dev/null 2>&1; then
            useradd --system --user-group --no-create-home --shell /usr/sbin/nologin \
                --home-dir "/var/lib/traceless-$service" --comment "Traceless $service" \
                "traceless-$service"
        fi
    done
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
