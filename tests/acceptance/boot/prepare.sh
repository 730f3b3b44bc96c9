#!/bin/bash
# Run once inside the machine, as root, after `portcullis up`: adds an agent's account to the boundary, senders that begin
# as early as systemd starts anything, a look at the moment before the first interface, and ways to spoil the boundary
# before it is loaded.
set -euo pipefail

install -m 0755 /mnt/portcullis-probe /usr/local/bin/portcullis-probe
sed -i 's/^agents = \[/agents = ["agent", /' /etc/portcullis/boundary.toml
grep -q '^agents = \["agent", ' /etc/portcullis/boundary.toml

unit() { cat >"/etc/systemd/system/$1.service"; }
send='/usr/local/bin/portcullis-probe send --every-ms 25'

# Nothing holds these two back, and nothing but the boundary stops the first.
unit early-agent <<UNIT
[Unit]
DefaultDependencies=no
[Service]
User=agent
NoNewPrivileges=yes
ExecStart=$send 10.0.2.2:4100 [fec0::2]:4100
[Install]
WantedBy=sysinit.target
UNIT
unit early-root <<UNIT
[Unit]
DefaultDependencies=no
[Service]
ExecStart=$send 10.0.2.2:4200 [fec0::2]:4200
[Install]
WantedBy=sysinit.target
UNIT

# An agent's own unit, as docs/install.md says to write one.
unit agent <<UNIT
[Unit]
Requires=portcullis-boundary-proof.service
After=portcullis-boundary-proof.service portcullis-boundary-watch.service
StartLimitIntervalSec=0
[Service]
User=agent
NoNewPrivileges=yes
ExecStartPre=+/usr/local/lib/portcullis/portcullis-boundary proven --status /run/portcullis/boundary/status.json
Restart=on-failure
RestartSec=1
ExecStart=$send 10.0.2.2:4300 [fec0::2]:4300
[Install]
WantedBy=multi-user.target
UNIT

unit moment <<UNIT
[Unit]
DefaultDependencies=no
After=network-pre.target
Before=systemd-networkd.service network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'mkdir /run/moment && nft list ruleset >/run/moment/rules && ip -o link show up >/run/moment/links'
[Install]
WantedBy=systemd-networkd.service
UNIT

cat >/usr/local/sbin/spoil <<'SPOIL'
#!/bin/sh
set -eu
config=/etc/portcullis/boundary.toml
case " $(cat /proc/cmdline) " in
*' spoil=broken-config '*) echo 'scope = [' >>"$config" ;;
*' spoil=no-binary '*) mv /usr/local/lib/portcullis/portcullis-boundary /usr/local/lib/portcullis/away ;;
esac
SPOIL
chmod 0755 /usr/local/sbin/spoil
unit spoil <<UNIT
[Unit]
DefaultDependencies=no
ConditionKernelCommandLine=spoil
Before=portcullis-boundary.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/spoil
[Install]
WantedBy=sysinit.target
UNIT

systemctl daemon-reload
systemctl --quiet enable early-agent early-root agent moment spoil
systemctl restart portcullis-boundary
timeout 300 bash -c 'until portcullis status; do sleep 1; done'
