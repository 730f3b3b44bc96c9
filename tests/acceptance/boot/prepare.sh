#!/bin/bash
# Run once inside the machine, as root, after `portcullis up`: adds an agent's account to the boundary, senders that begin
# as early as systemd starts anything, a look at the moment before the first interface, ways to spoil the boundary before
# it is loaded, and the boundary of scope `guest` for a boot that asks for it.
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

# A setting that the rules follow, and a boot in which settings come late.
echo 'net.ipv4.ip_unprivileged_port_start = 1000' >/etc/sysctl.d/99-ports.conf
mkdir -p /etc/systemd/system/systemd-sysctl.service.d
cat >/etc/systemd/system/systemd-sysctl.service.d/late.conf <<'UNIT'
[Service]
ExecStartPre=/bin/sh -c 'case " $(cat /proc/cmdline) " in *" settings=late "*) sleep 5 ;; esac'
UNIT

useradd --system --no-create-home --shell /usr/sbin/nologin resolver
# What is below `Named:` is taken away by a test.
cat >/etc/portcullis/guest.toml <<'GUEST'
scope = "guest"
table = "portcullis"
gate_port = 3128
proxy = "portcullis-proxy"
status = "/run/portcullis/boundary/status.json"

[[exception]]
user = "root"
destination = "10.0.2.2:4600"
reason = "something is fetched while the machine is set up"
expires = "2100-01-01T00:00:00Z"

# Named:
[guest.dhcp]
user = "systemd-network"
servers = ["10.0.2.2"]
reason = "the address is leased"

[guest.resolver]
user = "resolver"
servers = ["10.0.2.2:4700"]
reason = "the gate resolves through it"

[[guest.administration]]
sources = ["10.0.2.2"]
ports = [2222, 2424]
reason = "maintenance"
GUEST

# Says hello to whoever comes.
cat >/usr/local/sbin/listen <<'LISTEN'
#!/usr/bin/perl
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalPort => $ARGV[0], Listen => 5, ReuseAddr => 1) or die;
while (my $caller = $listener->accept) {
    print $caller "hello\n";
    close $caller;
}
LISTEN
chmod 0755 /usr/local/sbin/listen

cat >/usr/local/sbin/spoil <<'SPOIL'
#!/bin/sh
set -eu
config=/etc/portcullis/boundary.toml
case " $(cat /proc/cmdline) " in
*' spoil=broken-config '*) echo 'scope = [' >>"$config" ;;
*' boundary=guest '*)
    cp /etc/portcullis/guest.toml "$config"
    # The network manager's own router solicitations have its uid, and are refused.
    sed -i 's/^IPv6AcceptRA=.*/IPv6AcceptRA=no/' /etc/systemd/network/80-wired.network
    ;;
esac
SPOIL
chmod 0755 /usr/local/sbin/spoil
unit spoil <<UNIT
[Unit]
DefaultDependencies=no
ConditionKernelCommandLine=|spoil
ConditionKernelCommandLine=|boundary
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
